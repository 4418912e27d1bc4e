// NAMES PREFIX JOURNEY...: what the Node client does at a broker, and what it sees there, as JSON lines. Journeys go one
// after the other, each with a topic and a group of its own that begin with PREFIX. The topics must exist.
'use strict';

const co = require('co');
const { Producer, Consumer, Message } = require('rocketmq');

const PATIENCE = 60000;
const GRACE = 2000;
const [names, prefix, ...journeys] = process.argv.slice(2);
const silent = { info() {}, warn() {}, error() {}, debug() {} };
const httpclient = { request() { throw new Error('nothing is asked by HTTP'); } };
const sleep = ms => new Promise(done => setTimeout(done, ms));

class Journey {
  constructor(name) {
    this.name = name;
    this.topic = prefix + name;
    this.group = `${this.topic}_group`;
    this.options = { httpclient, logger: silent, namesrvAddr: names };
  }

  say(what, said) { console.log(JSON.stringify(Object.assign({ journey: this.name, what }, said))); }

  failed(error) { this.say('failed', { why: error.message }); }

  message(number, body) {
    const message = new Message(this.topic, 'Tag' + 'ABC'[number % 3], body || `body ${number}`);
    message.keys = [ `k${number}` ];
    message.properties.n = String(number);
    return message;
  }

  * producer() {
    const producer = new Producer(Object.assign({ producerGroup: `${this.group}_p` }, this.options));
    producer.on('error', error => this.failed(error));
    yield producer.ready();
    return producer;
  }

  * send(producer, message) {
    const result = yield producer.send(message);
    this.say('sent', { status: result.sendStatus, queueId: result.messageQueue.queueId, queueOffset: Number(result.queueOffset), hasId: !!result.msgId });
  }

  * fill(count) {
    const producer = yield this.producer();
    for (let number = 0; number < count; number++) yield this.send(producer, this.message(number));
    return producer;
  }

  * push(count, tags, members, options) {
    let due = count;
    const clients = [];
    for (const member of members) {
      const consumer = new Consumer(Object.assign({ consumerGroup: this.group, consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET' }, options, this.options));
      consumer.on('error', error => this.say('told', { why: error.message }));
      const journey = this;
      consumer.subscribe(this.topic, tags, function* (m) {
        const body = m.body.length > 100 ? m.body.length : m.body.toString();
        journey.say('got', { member, topic: m.topic, queueId: m.queueId, queueOffset: Number(m.queueOffset), keys: m.keys, tags: m.tags, body, reconsumeTimes: m.reconsumeTimes,
          storeSize: m.storeSize, sysFlag: m.sysFlag, flag: m.flag, preparedTransactionOffset: Number(m.preparedTransactionOffset), properties: m.properties });
        due--;
      });
      clients.push(consumer);
    }
    const end = Date.now() + PATIENCE;
    while (due > 0 && Date.now() < end) yield sleep(50);
    if (due > 0) this.say('missing', { deliveries: due });
    yield sleep(GRACE);
    for (const consumer of clients) yield consumer.close();
  }

  * run() {
    let producer;
    if (this.name === 'send') {
      producer = yield this.producer();
      yield this.send(producer, this.message(0));
      yield this.send(producer, this.message(1, 'x'.repeat(10000)));
      const delayed = this.message(2);
      delayed.delayTimeLevel = 1;
      yield this.send(producer, delayed);
      yield this.push(3, '*', [ 'one' ]);
    } else if (this.name === 'push') {
      producer = yield this.fill(12);
      yield this.push(12, '*', [ 'one' ]);
    } else if (this.name === 'tag') {
      producer = yield this.fill(12);
      yield this.push(8, 'TagA || TagB', [ 'one' ]);
    } else if (this.name === 'broadcast') {
      producer = yield this.fill(8);
      yield this.push(8, '*', [ 'one' ], { isBroadcast: true });
    } else throw new Error(`no journey ${this.name}`);
    yield producer.close();
  }
}

co(function* () {
  for (const name of journeys) {
    const journey = new Journey(name);
    try { yield journey.run(); } catch (error) { journey.failed(error); }
    journey.say('end');
  }
  process.exit(0);
});
