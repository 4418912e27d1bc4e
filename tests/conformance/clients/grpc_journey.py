"""The official gRPC client through a proxy: it sends, receives, gives one message more time, and acks all of them.

    python grpc_journey.py ENDPOINT TOPIC COUNT

The last line that it prints is what happened, as JSON.
"""

import json
import os
import sys
import threading
import time

from rocketmq import ClientConfiguration, Credentials, FilterExpression, Message, Producer, SimpleConsumer

INVISIBLE = 30
PATIENCE = 150


def send(configuration, topic, numbers, sent):
    producer = Producer(configuration, (topic,))
    producer.startup()
    for number in numbers:
        message = Message()
        message.topic, message.body = topic, b"body %d" % number
        message.tag, message.keys = "TagA", f"k{number}"
        sent.append(producer.send(message).message_id)
    producer.shutdown()


def receive(consumer):
    """Receive messages; the proxy refuses a consumer whose settings have not arrived yet."""
    try:
        return consumer.receive(32, INVISIBLE) or ()
    except Exception as error:
        print(error, file=sys.stderr)
        time.sleep(1)
        return ()


def main():
    endpoint, topic, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    configuration = ClientConfiguration(endpoint, Credentials(), "", 10)
    sent = []
    senders = [
        threading.Thread(target=send, args=(configuration, topic, range(first, count, 4), sent)) for first in range(4)
    ]
    consumer = SimpleConsumer(configuration, f"{topic}_group", {topic: FilterExpression()}, 5)
    consumer.startup()
    for sender in senders:
        sender.start()
    keys, extended, failed, end = [], 0, [], time.time() + PATIENCE
    while time.time() < end and len(set(keys)) < count:
        for message in receive(consumer):
            try:
                if not extended:
                    consumer.change_invisible_duration(message, 2 * INVISIBLE)
                    extended += 1
                consumer.ack(message)
                keys.extend(message.keys)
            except Exception as error:
                failed.append(str(error))
    for sender in senders:
        sender.join()
    # Nothing that was acked comes again.
    end = time.time() + 3
    while time.time() < end:
        keys.extend(key for message in receive(consumer) for key in message.keys)
    told = {"sent": len(set(sent)), "got": len(keys), "different": len(set(keys)), "extended": extended}
    print(json.dumps({**told, "failed": failed[:5]}), flush=True)
    os._exit(0)


main()
