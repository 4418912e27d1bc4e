"""Configuration files: samples from the specification, and what brokers make of texts that nobody wrote."""

from __future__ import annotations

from typing import Any

import pytest

from rmqtool.formats import config_files, config_shapes, paths
from rmqtool.formats.codes import is_since
from rmqtool.formats.config_files import Decoded
from rmqtool.formats.fastjson import (
    Bean,
    Dialect,
    JavaType,
    Kind,
    Oddity,
    OddityKind,
    Scalar,
    Sequence,
    Shape,
    Style,
    Table,
)
from rmqtool.formats.flaws import Flaw

DATA_VERSION = '"dataVersion":{\n\t\t"counter":3,\n\t\t"stateVersion":0,\n\t\t"timestamp":1700000000000\n\t}'

# As fastjson 1 writes them.
SAMPLES = {
    paths.TOPICS: """{
	%s,
	"topicConfigTable":{
		"TopicA":{
			"attributes":{
				"message.type":"NORMAL"
			},
			"order":false,
			"perm":6,
			"readQueueNums":8,
			"topicFilterType":"SINGLE_TAG",
			"topicName":"TopicA",
			"topicSysFlag":0,
			"writeQueueNums":8
		}
	}
}""",
    paths.SUBSCRIPTION_GROUP: """{
	%s,
	"forbiddenTable":{
		"g1":{
			"t1":1
		}
	},
	"subscriptionGroupTable":{
		"g1":{
			"attributes":{},
			"brokerId":0,
			"groupName":"g1",
			"groupRetryPolicy":{
				"customizedRetryPolicy":{
					"next":[1000,5000]
				},
				"exponentialRetryPolicy":{
					"initial":5000,
					"max":7200000,
					"multiplier":2
				},
				"type":"EXPONENTIAL"
			},
			"subscriptionDataSet":[{
				"expression":"*",
				"expressionType":"TAG",
				"topic":"t1",
				"version":5
			},{
				"expression":"a",
				"expressionType":"TAG",
				"topic":"t2",
				"version":6
			}]
		}
	}
}""",
    paths.LMQ_CONSUMER_OFFSET: """{
	%s,
	"groupTopicMap":{
		"groupA":["TopicA","%%RETRY%%groupA"]
	},
	"lmqOffsetTable":{
		"%%LMQ%%a@%%LMQ%%g":7
	},
	"offsetTable":{
		"TopicA@groupA":{0:5,1:6
		}
	}
}""",
    paths.DELAY_OFFSET: """{
	%s,
	"offsetTable":{1:10,3:2
	}
}""",
    paths.CONSUMER_FILTER: """{
	"filterDataByTopic":{
		"t1":{
			"groupFilterData":{
				"g1":{
					"bloomFilterData":{
						"bitNum":64,
						"bitPos":[1,5,9]
					},
					"bornTime":1700000000000,
					"clientVersion":1700000000000,
					"consumerGroup":"g1",
					"dead":false,
					"deadTime":0,
					"expression":"a > 1",
					"expressionType":"SQL92",
					"topic":"t1"
				}
			},
			"topic":"t1"
		}
	}
}""",
    paths.CONSUMER_ORDER_INFO: """{
	"table":{
		"topicA@groupA":{0:{
				"a":"att-1",
				"cm":1,
				"i":60000,
				"l":1700000000001,
				"o":[
					100,
					1,
					2
				],
				"oc":{100:1
				},
				"ot":{100:1700000000002
				},
				"popTime":1700000000000
			}
		}
	}
}""",
    paths.TOPIC_QUEUE_MAPPING: """{
	%s,
	"topicQueueMappingInfoMap":{
		"st":{
			"bname":"broker-a",
			"currIdMap":{0:0
			},
			"dirty":false,
			"epoch":1700000000000,
			"hostedQueues":{0:[
					{
						"bname":"broker-a",
						"endOffset":-1,
						"gen":0,
						"logicOffset":0,
						"queueId":0,
						"startOffset":0,
						"timeOfEnd":-1,
						"timeOfStart":-1
					}
				]
			},
			"scope":"__global__",
			"topic":"st",
			"totalQueues":8
		}
	}
}""",
    paths.MESSAGE_REQUEST_MODE: """{
	"messageRequestModeMap":{
		"t1":{
			"g1":{
				"consumerGroup":"g1",
				"mode":"POP",
				"popShareQueueNum":0,
				"topic":"t1"
			}
		}
	}
}""",
    paths.TIMER_METRICS: '{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},'
    '"timingCount":{"topicA":{"count":2,"timeStamp":1700000000000}}}',
    paths.TRANSACTION_METRICS: '{"dataVersion":{"counter":3,"stateVersion":0,"timestamp":1700000000000},'
    '"transactionCount":{"\\u4E2D":{"count":1,"timeStamp":1700000000000}}}',
    paths.POSITION_CHECKPOINT: '{\n\t"empty":true,\n\t"queueOffsetMap":{}\n}',
}
SAMPLES = {name: text % DATA_VERSION if "%s" in text else text for name, text in SAMPLES.items()}


def value_of(decoded: Decoded | Flaw) -> Any:
    assert isinstance(decoded, Decoded), decoded
    return decoded.value


@pytest.mark.parametrize("name", SAMPLES)
def test_samples(name: str) -> None:
    data = SAMPLES[name].encode()
    decoded = config_files.decode_config(name, data, Dialect.FASTJSON_1)
    assert isinstance(decoded, Decoded)
    assert (decoded.oddities, decoded.lossy) == ((), False)
    assert config_files.encode_config(name, decoded.value, Dialect.FASTJSON_1) == data
    other = config_files.encode_config(name, decoded.value, Dialect.FASTJSON_2)
    assert value_of(config_files.decode_config(name, other, Dialect.FASTJSON_2)) == decoded.value


@pytest.mark.parametrize(("dialect", "size"), [(Dialect.FASTJSON_1, 39), (Dialect.FASTJSON_2, 44)])
def test_an_empty_position_checkpoint(dialect: Dialect, size: int) -> None:
    value = config_files.new_bean(config_shapes.COMPACTION_POSITIONS, "5.3")
    assert len(config_files.encode_config(paths.POSITION_CHECKPOINT, value, dialect)) == size


def test_a_slave_keeps_the_delay_offsets_on_one_line() -> None:
    data = b'{"offsetTable":{1:10,3:2}}'
    value = value_of(config_files.decode_config(paths.DELAY_OFFSET, data))
    assert value == {"offsetTable": {1: 10, 3: 2}}
    assert config_files.encode_config(paths.DELAY_OFFSET, value, Dialect.FASTJSON_1, Style.COMPACT) == data


def test_every_file_of_a_configuration_is_declared() -> None:
    assert config_shapes.CONFIG_FILES.keys() == {*paths.CONFIG_FILES, paths.POSITION_CHECKPOINT}


def _beans() -> list[Bean]:
    named = [value for value in vars(config_shapes).values() if isinstance(value, Bean)]
    inner = [declared.shape for bean in named for declared in bean.fields.values()]
    return [*named, *(shape for shape in inner if isinstance(shape, Bean))]


def test_fields_are_in_the_order_that_the_library_writes() -> None:
    """By name, except for the POP state and what a broker knows of its tier: their classes state an order."""
    ordered = {"popTime": config_shapes.POP_CONSUMER_RECORD, "topicId": config_shapes.TIER_TOPIC}
    ordered |= {"queue": config_shapes.TIER_QUEUE, "path": config_shapes.TIER_SEGMENT}
    assert len(_beans()) > 20
    for bean in _beans():
        if bean not in ordered.values():
            assert list(bean.fields) == sorted(bean.fields)
    assert {name: next(iter(bean.fields)) for name, bean in ordered.items()} == {name: name for name in ordered}


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ('{"A@g":{0:5,1:6}}', {"A@g": {0: 5, 1: 6}}),
        ('{"A@g":{"0":5,"1":"6"}}', {"A@g": {0: 5, 1: 6}}),
        ('{"A@g":{0:5.0}}', {"A@g": {0: 5}}),
        ('{"A@g":{0:5.7}}', {"A@g": {0: 5}}),
        ('{"A@g":{0:1e3}}', {"A@g": {0: 1000}}),
        ('{"A@g":{0:true}}', {"A@g": {0: 1}}),
        ('{"A@g":{-1:-5,00:7}}', {"A@g": {-1: -5, 0: 7}}),
        ('{"A@g":{}}', {"A@g": {}}),
        ("{}", {}),
        ('{"A@g":{0:9223372036854775807}}', {"A@g": {0: 9223372036854775807}}),
    ],
)
def test_offsets_that_brokers_read(text: str, table: dict[str, Any]) -> None:
    data = f'{{"offsetTable":{text}}}'.encode()
    for dialect in Dialect:
        value = value_of(config_files.decode_config(paths.CONSUMER_OFFSET, data, dialect))
        assert value == {"offsetTable": table}
        numbers = [number for offsets in value["offsetTable"].values() for pair in offsets.items() for number in pair]
        assert all(type(number) is int for number in numbers)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "$.offsetTable is a list, an object is expected"),
        ('"x"', "$.offsetTable is 'x', an object is expected"),
        ('{"A@g":null}', "$.offsetTable.A@g is None, a value is expected"),
        ('{"A@g":7}', "$.offsetTable.A@g is 7, an object is expected"),
        ('{"A@g":[1,2]}', "$.offsetTable.A@g is a list, an object is expected"),
        ('{"A@g":{0:null}}', "$.offsetTable.A@g.0 is None, a value is expected"),
        ('{"A@g":{0:""}}', "$.offsetTable.A@g.0 is '', a number of type long is expected"),
        ('{"A@g":{0:"x"}}', "$.offsetTable.A@g.0 is 'x', a number of type long is expected"),
        ('{"A@g":{0:[7]}}', "$.offsetTable.A@g.0 is a list, a number of type long is expected"),
        ('{"A@g":{0:{}}}', "$.offsetTable.A@g.0 is an object, a number of type long is expected"),
        ('{"A@g":{"x":5}}', "$.offsetTable.A@g.x is 'x', a number of type int is expected"),
        ('{"A@g":{"":5}}', "$.offsetTable.A@g. is '', a number of type int is expected"),
        ('{"A@g":{"0 ":5}}', "$.offsetTable.A@g.0  is '0 ', a number of type int is expected"),
        ('{"A@g":{99999999999:5}}', "$.offsetTable.A@g.99999999999 is 99999999999, a number of type int is expected"),
        (
            '{"A@g":{0:9223372036854775808}}',
            "$.offsetTable.A@g.0 is 9223372036854775808, a number of type long is expected",
        ),
        (
            '{"A@g":{0:5},"B@g":{"$ref":"$.offsetTable.A"}}',
            "$.offsetTable.B@g is a reference to another value, an object is expected",
        ),
    ],
)
def test_offsets_that_no_broker_reads(text: str, message: str) -> None:
    data = f'{{"offsetTable":{text}}}'.encode()
    assert config_files.decode_config(paths.CONSUMER_OFFSET, data) == Flaw("CF-JSON", message, 0, len(data))


def test_what_a_broker_takes_for_no_fields() -> None:
    for data in (b"null", b"{}"):
        for dialect in (None, *Dialect):
            assert value_of(config_files.decode_config(paths.CONSUMER_OFFSET, data, dialect)) == {}
    assert value_of(config_files.decode_config(paths.CONSUMER_OFFSET, b"[]", Dialect.FASTJSON_1)) == {}
    for data in (b"[]", b"[1]", b"5", b'"x"'):
        assert isinstance(config_files.decode_config(paths.CONSUMER_OFFSET, data, Dialect.FASTJSON_2), Flaw)
    assert config_files.decode_config(paths.TOPICS, b"") == Flaw("CF-JSON", "there is no value", 0)


def test_broken_texts_say_at_which_byte() -> None:
    data = '{"é中":"\U0001f600",x}'.encode()
    assert config_files.decode_config(paths.TOPICS, data) == Flaw("CF-JSON", "a colon is expected", len(data) - 1)
    flaw = config_files.decode_config(paths.TOPICS, b'{"\xff\xff\xff":')
    assert isinstance(flaw, Flaw)
    assert flaw.at <= 7


def test_replaced_bytes_and_oddities_are_told() -> None:
    decoded = config_files.decode_config(paths.TOPICS, b'{"topicConfigTable":{"a\xff":{}},}')
    assert isinstance(decoded, Decoded)
    assert decoded.lossy
    assert decoded.oddities == (Oddity(OddityKind.TRAILING_COMMA, 30),)
    assert decoded.value == {"topicConfigTable": {"a\ufffd": {}}}


def test_a_dialect_may_refuse() -> None:
    data = b"{offsetTable:{}}"
    assert value_of(config_files.decode_config(paths.CONSUMER_OFFSET, data, Dialect.FASTJSON_1)) == {"offsetTable": {}}
    flaw = config_files.decode_config(paths.CONSUMER_OFFSET, data, Dialect.FASTJSON_2)
    assert flaw == Flaw("CF-JSON", "fastjson 2 refuses: unquoted name", 1)


def test_fields_get_their_types_and_unknown_ones_stay() -> None:
    text = """{"topicConfigTable":{"T":{"perm":"6","order":"true","topicName":5,"topicFilterType":null,"odd":[1,null],
    "attributes":{"a":1,"b":null,"c":true}}},"unknown":{"1":2,3:4}}"""
    assert value_of(config_files.decode_config(paths.TOPICS, text.encode())) == {
        "topicConfigTable": {
            "T": {
                "perm": 6,
                "order": True,
                "topicName": "5",
                "topicFilterType": None,
                "odd": [1, None],
                "attributes": {"a": "1", "b": None, "c": "true"},
            }
        },
        "unknown": {"1": 2, 3: 4},
    }


@pytest.mark.parametrize(
    "text",
    [
        '{"T":{"order":"yes"}}',
        '{"T":{"order":2}}',
        '{"T":{"order":[]}}',
        '{"T":{"topicName":{}}}',
        '{"T":{"perm":4294967296}}',
        '{"T":5}',
    ],
)
def test_fields_of_a_wrong_type(text: str) -> None:
    flaw = config_files.decode_config(paths.TOPICS, f'{{"topicConfigTable":{text}}}'.encode())
    assert isinstance(flaw, Flaw)
    assert flaw.message.startswith("$.topicConfigTable.T")


def test_fields_that_are_only_written_are_not_looked_at() -> None:
    data = b'{"groupTopicMap":5,"offsetTable":{}}'
    assert value_of(config_files.decode_config(paths.CONSUMER_OFFSET, data)) == {"groupTopicMap": 5, "offsetTable": {}}


@pytest.mark.parametrize(
    ("version", "dialect"),
    [
        ("4.9", Dialect.FASTJSON_1),
        ("5.3", Dialect.FASTJSON_1),
        ("5.4", Dialect.FASTJSON_2),
        ("5.4.1", Dialect.FASTJSON_2),
    ],
)
def test_who_writes_with_what(version: str, dialect: Dialect) -> None:
    assert config_files.dialect_of(version) is dialect


def test_new_objects_of_a_version() -> None:
    assert config_files.new_bean(config_shapes.CONSUMER_OFFSETS, "4.9") == {"offsetTable": {}}
    assert config_files.new_bean(config_shapes.CONSUMER_OFFSETS, "5.3", offsetTable={"T@g": {0: 1}}) == {
        "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 0},
        "groupTopicMap": {},
        "offsetTable": {"T@g": {0: 1}},
    }
    assert config_files.new_bean(config_shapes.CONSUMER_ORDER_INFO, "5.3") == {"table": {}}
    order_info = config_files.new_bean(config_shapes.CONSUMER_ORDER_INFO, "5.4")
    assert order_info == {"orderedConsumptionLevel": "QUEUE", "table": {}}
    group = config_files.new_bean(config_shapes.SUBSCRIPTION_GROUP_CONFIG, "5.1.2", groupName="g")
    assert "attributes" not in group
    assert group["groupRetryPolicy"] == {"type": "CUSTOMIZED"}
    assert "subscriptionDataSet" not in group
    assert config_files.new_bean(config_shapes.TOPIC_CONFIG, "4.9", topicName="T")["writeQueueNums"] == 16


def test_new_objects_share_nothing() -> None:
    first = config_files.new_bean(config_shapes.TOPICS, "5.3")
    first["topicConfigTable"]["T"] = {}
    assert config_files.new_bean(config_shapes.TOPICS, "5.3")["topicConfigTable"] == {}


def test_a_new_object_has_no_other_fields() -> None:
    with pytest.raises(ValueError, match="no such field: prem"):
        config_files.new_bean(config_shapes.TOPIC_CONFIG, "5.3", prem=6)


PARSED = Table(config_shapes.LONG, 16, JavaType.INT)


def test_order_of_keys() -> None:
    assert config_files.order_keys([3, 0, 17, 100], PARSED) == [0, 17, 3, 100]
    assert config_files.order_keys([3, 0, 17, 100], config_shapes.QUEUE_OFFSETS) == [0, 3, 17, 100]
    # A concurrent map grows when three quarters are reached, a plain one when they are exceeded.
    twelve = [*range(11), 16]
    assert config_files.order_keys(twelve, PARSED) == twelve
    assert config_files.order_keys(twelve, Table(config_shapes.LONG, concurrent=False)) == [0, 16, *range(1, 11)]


def test_new_keys_go_where_their_bin_is() -> None:
    table = {0: "a", 3: "b", 100: "c"}
    assert list(config_files.with_entry(table, 17, "d", config_shapes.QUEUE_OFFSETS).items()) == [
        (0, "a"),
        (3, "b"),
        (17, "d"),
        (100, "c"),
    ]
    assert list(config_files.with_entry({3: 0}, 0, 0, config_shapes.QUEUE_OFFSETS)) == [0, 3]
    assert list(config_files.with_entry({}, 5, 0, config_shapes.QUEUE_OFFSETS)) == [5]
    assert list(table) == [0, 3, 100]


def test_existing_keys_keep_their_place() -> None:
    odd = {100: "a", 0: "b", 17: "c"}
    assert list(config_files.with_entry(odd, 0, "x", config_shapes.QUEUE_OFFSETS).items()) == [
        (100, "a"),
        (0, "x"),
        (17, "c"),
    ]
    assert [key for key in config_files.with_entry(odd, 3, "x", config_shapes.QUEUE_OFFSETS) if key != 3] == [
        100,
        0,
        17,
    ]


def test_a_map_that_a_parser_filled_is_recognised_by_its_order() -> None:
    after_restart = {0: 0, 17: 0, 3: 0, 100: 0}
    assert list(config_files.with_entry(after_restart, 33, 0, config_shapes.QUEUE_OFFSETS)) == [0, 17, 33, 3, 100]


def test_group_topic_map() -> None:
    """The orders are those of a real file; keys that upstream cannot split make no entry."""
    keys = (
        "T_normal@G_ok",
        "T_trans@G_ok",
        "T_delay@G_ok",
        "%RETRY%G_retry@G_retry",
        "T_retry@G_retry",
        "T_fifo@G_order",
    )
    odd = ("no group", "a@b@c", "@", "T@", "")
    made = config_files.group_topic_map({key: {} for key in (*keys, *odd)})
    assert list(made.items()) == [
        ("G_order", ["T_fifo"]),
        ("G_retry", ["T_retry", "%RETRY%G_retry"]),
        ("G_ok", ["T_delay", "T_trans", "T_normal"]),
    ]
    assert config_files.group_topic_map({"T@g@": {}, "@h": {}}) == {"g": ["T"], "h": [""]}


def _shapes(shape: Shape) -> list[Shape]:
    if isinstance(shape, Bean):
        return [shape, *(inner for field in shape.fields.values() for inner in _shapes(field.shape))]
    if isinstance(shape, Table):
        return [shape, *_shapes(shape.values)]
    return [shape, *_shapes(shape.items)] if isinstance(shape, Sequence) else [shape]


@pytest.mark.parametrize("name", config_shapes.CONFIG_FILES)
def test_declarations_make_sense(name: str) -> None:
    file = config_shapes.CONFIG_FILES[name]
    for shape in _shapes(file.root):
        if isinstance(shape, Table):
            assert shape.bins & (shape.bins - 1) == 0
            assert shape.numeric_keys in (None, JavaType.INT, JavaType.LONG)
        elif isinstance(shape, Bean):
            assert all(is_since("5.4", field.since) for field in shape.fields.values())
        elif isinstance(shape, Sequence):
            assert shape.kind in Kind
        else:
            assert isinstance(shape, Scalar)
    made = config_files.new_bean(file.root, "5.4")
    data = config_files.encode_config(name, made, Dialect.FASTJSON_2)
    assert value_of(config_files.decode_config(name, data, Dialect.FASTJSON_2)) == made
