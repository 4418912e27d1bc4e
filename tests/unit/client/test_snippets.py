"""What a newcomer types first, with the habits of three clients for Kafka: it works, or a sentence says what to type.

The snippets are written as those clients' own quick starts, with this library's module in place of theirs.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import pytest

import rmqtool
from rmqtool.errors import RmqtoolError


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    with rmqtool.serve(memory=True) as served:
        with rmqtool.connect(f"rocketmq://{served.names}") as cluster:
            cluster.topic("create", "Orders", queues=2)
            with cluster.producer() as producer:
                for number in range(40):
                    producer.send_async("Orders", f"order {number}", keys=f"k{number}")
        yield served.names


WORKS = {
    "a loop over messages": """
        import rmqtool
        cluster = rmqtool.connect("rocketmq://NAMES")
        consumer = cluster.consumer("Orders", group="loop", start="earliest", timeout=60)
        bodies = []
        for message in consumer:
            bodies.append(message["body"])
            if len(bodies) == 40:
                break
        consumer.close()
    """,
    "a producer that is flushed": """
        from rmqtool import connect
        producer = connect("rocketmq://NAMES").producer()
        futures = [producer.send_async("Other", b"x") for _ in range(10)]
        producer.flush()
        assert all(future.result(timeout=60).queue_offset >= 0 for future in futures)
    """,
    "a producer on a loop": """
        import asyncio, rmqtool
        async def main():
            async with rmqtool.connect_async("rocketmq://NAMES") as cluster:
                async with cluster.producer() as producer:
                    return await producer.send("Other", b"Super message")
        assert asyncio.run(main()).status == "PUT_OK"
    """,
    "messages on a loop": """
        import asyncio, rmqtool
        async def main():
            async with rmqtool.connect_async("rocketmq://NAMES") as cluster:
                found = cluster.consume("Orders", group="on-a-loop", start="earliest", limit=3)
                return [message["body"] async for message in found]
        assert len(asyncio.run(main())) == 3
    """,
    "poll in a loop": """
        import rmqtool
        with rmqtool.connect("rocketmq://NAMES") as cluster:
            consumer = cluster.consumer(["Orders"], group="polls", start="earliest")
            seen = 0
            while seen < 40:
                for message in consumer.poll(timeout=1.0):
                    seen += 1
            consumer.commit()
            consumer.close()
    """,
}
# The snippet, and what it is answered with.
SAYS = {
    "KafkaProducer": (
        """
        from rmqtool import KafkaProducer
        """,
        "rmqtool has no KafkaProducer; here: rmqtool.connect(",
    ),
    "rmqtool.KafkaProducer": (
        """
        import rmqtool
        producer = rmqtool.KafkaProducer(bootstrap_servers="NAMES")
        """,
        "here: rmqtool.connect(",
    ),
    "bootstrap_servers": (
        """
        import rmqtool
        cluster = rmqtool.connect(bootstrap_servers=["NAMES"])
        """,
        "did you mean 'address'?; it is called as connect(address,",
    ),
    "an address without a scheme": (
        """
        import rmqtool
        cluster = rmqtool.connect("NAMES")
        """,
        "is not the address of a cluster",
    ),
    "value": (
        """
        producer.send("Orders", value=b"some bytes")
        """,
        "did you mean 'body'?; it is called as send(topic, body, **message)",
    ),
    "key and value": (
        """
        producer.send("Orders", b"some bytes", key=b"customer-7")
        """,
        "did you mean 'sharding_key'?",
    ),
    "key as the third": (
        """
        producer.send("Orders", b"some bytes", b"customer-7")
        """,
        "too many positional arguments; it is called as send(topic, body, **message)",
    ),
    "future.get": (
        """
        metadata = producer.send_async("Orders", b"x").get(timeout=10)
        """,
        "a Sending has no attribute 'get'; here: result(timeout=10)",
    ),
    "add_callback": (
        """
        producer.send_async("Orders", b"x").add_callback(print)
        """,
        "here: add_done_callback(function)",
    ),
    "record_metadata": (
        """
        print(producer.send("Orders", b"x").partition)
        """,
        "a SendResult has no attribute 'partition'; here: queue_id",
    ),
    "get of a result": (
        """
        print(producer.send("Orders", b"x").get(timeout=10))
        """,
        "here: send waits, and this is the result",
    ),
    "flush with a timeout": (
        """
        producer.flush(10)
        """,
        "flush() too many positional arguments; it is called as flush()",
    ),
    "no group": (
        """
        for message in cluster.consume("Orders"):
            print(message)
        """,
        "missing a required argument: 'group'; it is called as consume(topics, group,",
    ),
    "group_id": (
        """
        consumer = cluster.consumer("Orders", group_id="my-group")
        """,
        "did you mean 'group'?; it is called as consumer(topics, group, **settings)",
    ),
    "poll with timeout_ms": (
        """
        records = consumer.poll(timeout_ms=1000)
        """,
        "did you mean 'timeout'?; it is called as poll(max_messages=32, *, timeout=1.0)",
    ),
    "poll of confluent": (
        """
        msg = consumer.poll(1.0)
        """,
        "poll takes the number of messages first, not 1.0",
    ),
    "items of a poll": (
        """
        for tp, messages in consumer.poll(timeout=60).items():
            print(tp, messages)
        """,
        "a list of messages has no attribute 'items'; here: for message in messages",
    ),
    "value of a message": (
        """
        print(next(consumer).value)
        """,
        "a message has no attribute 'value'; here: message[",
    ),
    "a method of a message": (
        """
        print(consumer.poll(1, timeout=60)[0].error())
        """,
        "here: nothing: errors are raised",
    ),
    "topic of a message": (
        """
        print(next(consumer).topic)
        """,
        "a message is a dictionary: message[",
    ),
    "commit of a message": (
        """
        consumer.commit(next(consumer))
        """,
        "commit() too many positional arguments; it is called as commit()",
    ),
    "commit at once": (
        """
        consumer.commit(asynchronous=False)
        """,
        "commit() got an unexpected keyword argument 'asynchronous'; it is called as commit()",
    ),
    "subscribe": (
        """
        consumer.subscribe(["Orders"])
        """,
        "here: name the topics when you make it",
    ),
    "async with connect": (
        """
        import asyncio
        async def main():
            async with rmqtool.connect("rocketmq://NAMES") as cluster:
                print(cluster)
        asyncio.run(main())
        """,
        "connect is for code without asyncio",
    ),
    "async for over a consumer without asyncio": (
        """
        import asyncio
        async def main():
            async for message in consumer:
                print(message)
        asyncio.run(main())
        """,
        "this consumer is for code without asyncio",
    ),
    "a loop over a consumer with asyncio": (
        """
        import asyncio
        async def main():
            async with rmqtool.connect_async("rocketmq://NAMES") as cluster:
                for message in cluster.consumer("Orders", "G"):
                    print(message)
        asyncio.run(main())
        """,
        "this consumer is for code with asyncio",
    ),
    "send_and_wait": (
        """
        import asyncio
        async def main():
            async with rmqtool.connect_async("rocketmq://NAMES") as cluster:
                await cluster.producer().send_and_wait("Orders", b"x")
        asyncio.run(main())
        """,
        "here: send(topic, body)",
    ),
    "value on a loop": (
        """
        import asyncio
        async def main():
            async with rmqtool.connect_async("rocketmq://NAMES") as cluster:
                await cluster.producer().send("Orders", value=b"x")
        asyncio.run(main())
        """,
        "did you mean 'body'?; it is called as send(topic, body, **message)",
    ),
}


@pytest.mark.parametrize("name", WORKS)
def test_a_snippet_works(name: str, names: str) -> None:
    exec(textwrap.dedent(WORKS[name]).replace("NAMES", names), {})


@pytest.mark.parametrize("name", SAYS)
def test_a_snippet_is_answered_with_a_sentence(name: str, names: str) -> None:
    text, said = SAYS[name]
    with rmqtool.connect(f"rocketmq://{names}") as cluster:
        group = "G" + "".join(filter(str.isalpha, name))
        consumer = cluster.consumer("Orders", group=group, start="first", timeout=5)
        known = {"rmqtool": rmqtool, "cluster": cluster, "consumer": consumer, "producer": cluster.producer()}
        try:
            with pytest.raises((RmqtoolError, TypeError, AttributeError, ImportError)) as error:
                exec(textwrap.dedent(text).replace("NAMES", names), known)
        finally:
            consumer.close()
    assert said in str(error.value)
