// NAMES PREFIX JOURNEY...: what an unmodified Go client does at a broker, and what it sees there, as JSON lines. Journeys
// go one after the other, each with a topic and a group of its own that begin with PREFIX. Or NAMES member WORD...: see
// member.go.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	queues   = 4
	patience = 60 * time.Second
	grace    = 2 * time.Second
)

type line map[string]interface{}

type journey struct {
	names primitive.NamesrvAddr
	name  string
	topic string
	group string
	lock  sync.Mutex
	due   int
	done  chan bool
	ends  []func() error
}

func (j *journey) say(what string, said line) {
	j.lock.Lock()
	defer j.lock.Unlock()
	said["journey"], said["what"] = j.name, what
	text, err := json.Marshal(said)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func (j *journey) must(err error) {
	if err != nil {
		j.say("failed", line{"why": err.Error()})
	}
}

func (j *journey) delivery(what string, member string, m *primitive.MessageExt, more line) {
	said := line{"member": member, "topic": m.Topic, "queueId": m.Queue.QueueId, "queueOffset": m.QueueOffset, "keys": m.GetKeys(), "tags": m.GetTags(),
		"reconsumeTimes": m.ReconsumeTimes, "body": string(m.Body), "sysFlag": m.SysFlag, "flag": m.Flag, "storeSize": m.StoreSize,
		"preparedTransactionOffset": m.PreparedTransactionOffset, "properties": m.GetProperties(), "hasOffsetId": len(m.OffsetMsgId) == 32}
	for name, value := range more {
		said[name] = value
	}
	j.say(what, said)
	j.lock.Lock()
	defer j.lock.Unlock()
	if what == "got" {
		if j.due--; j.due == 0 {
			close(j.done)
		}
	}
}

// await waits for the deliveries that are due, and for those that are not.
func (j *journey) await() {
	select {
	case <-j.done:
	case <-time.After(patience):
		j.say("missing", line{"deliveries": j.due})
	}
	time.Sleep(grace)
}

// byNumber sends a message to the queue that its number says, a batch to the last.
type byNumber struct{}

func (byNumber) Select(m *primitive.Message, all []*primitive.MessageQueue, _ string) *primitive.MessageQueue {
	number, err := strconv.Atoi(m.GetProperty("n"))
	if err != nil {
		number = queues - 1
	}
	for _, queue := range all {
		if queue.QueueId == number%queues {
			return queue
		}
	}
	return nil
}

func (j *journey) message(number int) *primitive.Message {
	text := strconv.Itoa(number)
	m := primitive.NewMessage(j.topic, []byte("body "+text)).WithKeys([]string{"k" + text}).WithTag("Tag" + string("ABC"[number%3]))
	m.WithProperty("n", text)
	return m
}

func (j *journey) options() []producer.Option {
	return []producer.Option{producer.WithNameServer(j.names), producer.WithGroupName(j.group + "_p"), producer.WithInstanceName(j.group + "-producer"),
		producer.WithQueueSelector(byNumber{}), producer.WithRetry(2), producer.WithSendMsgTimeout(patience)}
}

func (j *journey) producer() rocketmq.Producer {
	p, err := rocketmq.NewProducer(j.options()...)
	j.must(err)
	j.must(p.Start())
	j.ends = append(j.ends, p.Shutdown)
	return p
}

func (j *journey) sent(label string, r *primitive.SendResult, err error) {
	j.must(err)
	if err == nil {
		j.say("sent", line{"label": label, "status": int(r.Status), "queueId": r.MessageQueue.QueueId, "queueOffset": r.QueueOffset, "region": r.RegionID, "trace": r.TraceOn,
			"hasId": r.MsgID != "", "hasOffsetId": r.OffsetMsgID != ""})
	}
}

func (j *journey) fill(count int) rocketmq.Producer {
	p := j.producer()
	for i := 0; i < count; i++ {
		_, err := p.SendSync(context.Background(), j.message(i))
		j.must(err)
	}
	return p
}

// push consumes until so many deliveries came; fails says how often a message is refused before it is taken.
func (j *journey) push(count int, members []string, tags string, fails func(m *primitive.MessageExt) int, more ...consumer.Option) {
	j.due, j.done = count, make(chan bool)
	for _, name := range members {
		member := name
		options := append([]consumer.Option{consumer.WithNameServer(j.names), consumer.WithGroupName(j.group), consumer.WithInstance(j.group + "-" + member),
			consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumeMessageBatchMaxSize(1)}, more...)
		c, err := rocketmq.NewPushConsumer(options...)
		j.must(err)
		j.must(c.Subscribe(j.topic, consumer.MessageSelector{Type: consumer.TAG, Expression: tags}, func(ctx context.Context, ms ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			taken := true
			for _, m := range ms {
				is := int(m.ReconsumeTimes) >= fails(m)
				j.delivery("got", member, m, line{"taken": is, "waited": time.Now().UnixMilli() - m.BornTimestamp})
				taken = taken && is
			}
			if taken {
				return consumer.ConsumeSuccess, nil
			}
			if context, ok := primitive.GetConcurrentlyCtx(ctx); ok {
				context.DelayLevelWhenNextConsume = 1
			}
			return consumer.ConsumeRetryLater, nil
		}))
		j.must(c.Start())
		j.ends = append(j.ends, c.Shutdown)
	}
	j.await()
}

func never(*primitive.MessageExt) int { return 0 }

func twiceButTheFirst(m *primitive.MessageExt) int {
	if m.GetKeys() == "k0" {
		return 0
	}
	return 2
}

func (j *journey) send() {
	p := j.producer()
	background := context.Background()
	r, err := p.SendSync(background, j.message(0))
	j.sent("first", r, err)
	answered := make(chan bool)
	j.must(p.SendAsync(background, func(_ context.Context, r *primitive.SendResult, err error) { j.sent("async", r, err); close(answered) }, j.message(1)))
	<-answered
	j.must(p.SendOneWay(background, j.message(2)))
	r, err = p.SendSync(background, j.message(3), j.message(7), j.message(11))
	j.sent("batch", r, err)
	big := j.message(4)
	big.Body = make([]byte, 10_000)
	for i := range big.Body {
		big.Body[i] = 'x'
	}
	r, err = p.SendSync(background, big)
	j.sent("compressed", r, err)
	r, err = p.SendSync(background, j.message(5).WithDelayTimeLevel(1))
	j.sent("delayed", r, err)
	j.push(8, []string{"one"}, "*", never)
}

type decisions struct{ *journey }

func (d decisions) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	return []primitive.LocalTransactionState{primitive.CommitMessageState, primitive.RollbackMessageState, primitive.UnknowState, primitive.UnknowState}[m.GetKeys()[1]-'0']
}

func (d decisions) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	d.delivery("asked", "one", m, line{"hasTransactionId": m.TransactionId != ""})
	if m.GetKeys() == "k2" {
		return primitive.CommitMessageState
	}
	return primitive.RollbackMessageState
}

func (j *journey) transaction() {
	p, err := rocketmq.NewTransactionProducer(decisions{j}, j.options()...)
	j.must(err)
	j.must(p.Start())
	j.ends = append(j.ends, p.Shutdown)
	for i := 0; i < 4; i++ {
		r, err := p.SendMessageInTransaction(context.Background(), j.message(i))
		j.must(err)
		if err == nil {
			j.say("half", line{"label": i, "status": int(r.Status), "state": int(r.State)})
		}
	}
	j.push(2, []string{"one"}, "*", never)
	time.Sleep(5 * time.Second)
}

func (j *journey) pull() {
	j.fill(12)
	c, err := rocketmq.NewPullConsumer(consumer.WithNameServer(j.names), consumer.WithGroupName(j.group), consumer.WithInstance(j.group+"-pull"))
	j.must(err)
	j.must(c.Subscribe(j.topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}))
	j.must(c.Start())
	j.ends = append(j.ends, c.Shutdown)
	found := 0
	for end := time.Now().Add(patience); found < 12 && time.Now().Before(end); {
		r, err := c.Poll(context.Background(), time.Second)
		if err != nil {
			continue // nothing came in that second
		}
		for _, m := range r.GetMsgList() {
			j.delivery("got", "pull", m, line{})
			found++
		}
		c.ACK(context.Background(), r, consumer.ConsumeSuccess)
	}
	if found < 12 {
		j.say("missing", line{"deliveries": 12 - found})
	}
}

func (j *journey) run() {
	one := []string{"one"}
	switch j.name {
	case "send":
		j.send()
	case "push":
		j.fill(12)
		j.push(12, one, "*", never)
	case "tag":
		j.fill(12)
		j.push(8, one, "TagA || TagB", never)
	case "orderly":
		j.fill(12)
		j.push(12, one, "*", never, consumer.WithConsumerOrder(true))
	case "broadcast":
		j.fill(8)
		j.push(16, []string{"one", "two"}, "*", never, consumer.WithConsumerModel(consumer.BroadCasting))
	case "retry":
		j.fill(4)
		j.push(10, one, "*", twiceButTheFirst)
	case "transaction":
		j.transaction()
	case "pull":
		j.pull()
	default:
		j.must(fmt.Errorf("no journey %s", j.name))
	}
}

func main() {
	rlog.SetLogLevel("fatal")
	if os.Args[2] == "member" {
		member(os.Args[1], os.Args[3:])
		return
	}
	for _, name := range os.Args[3:] {
		topic := os.Args[2] + name
		j := &journey{names: primitive.NamesrvAddr{os.Args[1]}, name: name, topic: topic, group: topic + "_group"}
		j.run()
		for _, end := range j.ends {
			j.must(end())
		}
		j.say("end", line{})
	}
}
