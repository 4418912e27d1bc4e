package main

import (
	"context"
	"io"
	"os"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

const work = 2 * time.Millisecond

// member is one member of a group: TOPIC GROUP MEMBER concurrent|orderly. For each message it prints the queue, the
// body, and when (ms) it began and ended with it. It stops in order when its standard input ends.
func member(names string, words []string) {
	j := &journey{name: words[2], done: make(chan bool)}
	isOrderly := words[3] == "orderly"
	c, err := rocketmq.NewPushConsumer(consumer.WithNameServer(primitive.NamesrvAddr{names}), consumer.WithGroupName(words[1]),
		consumer.WithInstance(words[2]), consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(isOrderly))
	j.must(err)
	j.must(c.Subscribe(words[0], consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}, func(_ context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range ms {
			begun := time.Now().UnixMilli()
			if isOrderly {
				time.Sleep(work)
			}
			j.say("got", line{"queue": m.Queue.QueueId, "body": string(m.Body), "begun": begun, "ended": time.Now().UnixMilli()})
		}
		return consumer.ConsumeSuccess, nil
	}))
	j.must(c.Start())
	j.say("started", line{"started": time.Now().UnixMilli()})
	_, err = io.Copy(io.Discard, os.Stdin)
	j.must(err)
	j.must(c.Shutdown())
}
