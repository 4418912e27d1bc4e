from __future__ import annotations

import ast
from pathlib import Path

import pytest

import rmqtool
from rmqtool.config import SETTINGS, BrokerRole, FlushDiskType, Origin, StoreConfig, Version, is_secret
from rmqtool.config.settings import UNUSED
from rmqtool.errors import UsageError
from rmqtool.findings import Severity
from rmqtool.secrets import MASK

# From the tables of defaults of the three versions: name, 4.9, 5.3, 5.4.
DEFAULTS = [
    ("mappedFileSizeCommitLog", 1_073_741_824, 1_073_741_824, 1_073_741_824),
    ("mappedFileSizeConsumeQueue", 6_000_000, 6_000_000, 6_000_000),
    ("mappedFileSizeConsumeQueueExt", 50_331_648, 50_331_648, 50_331_648),
    ("mapperFileSizeBatchConsumeQueue", 13_800_000, 13_800_000, 13_800_000),
    ("maxHashSlotNum", 5_000_000, 5_000_000, 5_000_000),
    ("maxIndexNum", 20_000_000, 20_000_000, 20_000_000),
    ("mappedFileSizeTimerLog", 104_857_600, 104_857_600, 104_857_600),
    ("maxMessageSize", 4_194_304, 4_194_304, 4_194_304),
    ("checkCRCOnRecover", True, True, True),
    ("messageIndexSafe", False, False, False),
    ("duplicationEnable", False, False, False),
    ("commitLogRecoverMaxNum", None, None, 10),
    ("autoMessageVersionOnTopicLen", False, True, True),
    ("timerWheelEnable", False, True, True),
    ("enableCompaction", False, True, True),
    ("transactionCheckInterval", 60_000, 30_000, 30_000),
    ("appendTopicForTimerDeleteKey", True, True, False),
    ("recheckReputOffsetFromCq", True, False, False),
    ("flushDiskType", FlushDiskType.ASYNC_FLUSH, FlushDiskType.ASYNC_FLUSH, FlushDiskType.ASYNC_FLUSH),
    ("brokerRole", BrokerRole.ASYNC_MASTER, BrokerRole.ASYNC_MASTER, BrokerRole.ASYNC_MASTER),
    ("diskMaxUsedSpaceRatio", 75, 75, 75),
    ("diskSpaceCleanForciblyRatio", 85, 85, 85),
    ("diskSpaceWarningLevelRatio", 90, 90, 90),
    ("fileReservedTime", 72, 72, 72),
    ("deleteWhen", "04", "04", "04"),
    ("maxTransferBytesOnMessageInMemory", 262_144, 262_144, 262_144),
    ("maxTransferBytesOnMessageInDisk", 65_536, 65_536, 65_536),
    ("timerRollWindowSlot", 172_800, 172_800, 172_800),
    ("timerMaxDelaySec", 259_200, 259_200, 259_200),
    ("timerCongestNumEachSlot", 2_147_483_647, 2_147_483_647, 2_147_483_647),
]


@pytest.mark.parametrize(("name", "in_4_9", "in_5_3", "in_5_4"), DEFAULTS)
def test_defaults_are_those_of_the_version(name: str, in_4_9: object, in_5_3: object, in_5_4: object) -> None:
    found = [StoreConfig.default(version).value(name) for version in (Version.V4_9, Version.V5_3, Version.V5_4)]
    assert found == [in_4_9, in_5_3, in_5_4]


def test_every_default_has_the_type_of_its_attribute() -> None:
    for row in SETTINGS.values():
        for default in row.defaults.values():
            assert default is None or type(default) is row.kind, row.name
    assert StoreConfig() == StoreConfig.default(Version.V5_3)


def test_upstreams_names_lead_to_attributes_and_back() -> None:
    assert [row.name for row in SETTINGS.values()] == list(SETTINGS)
    assert len({row.attribute for row in SETTINGS.values()}) == len(SETTINGS)
    assert SETTINGS["brokerIP1"].attribute == "broker_ip1"
    assert SETTINGS["enableDLegerCommitLog"].attribute == "enable_dledger_commit_log"


def test_a_broker_conf_sets_values_with_their_origin_and_keeps_unknown_keys() -> None:
    config = StoreConfig.default(Version.V4_9).with_broker_conf(
        b"brokerName = broker-a\nflushDiskType=SYNC_FLUSH\nmaxIndexNum=200\nnamesrvAddr=10.0.0.1:9876\n"
        b"brokerId=4294967296\nenableLmq=TRUE\ntimerWheelEnable=true\n"
    )
    assert config.broker_name == "broker-a"
    assert config.flush_disk_type is FlushDiskType.SYNC_FLUSH
    assert config.max_index_num == 200
    assert config.broker_id == 1 << 32
    assert config.enable_lmq is True
    assert config.origin("maxIndexNum") is Origin.BROKER_CONF
    assert config.origin("maxHashSlotNum") is Origin.DEFAULT
    assert config.findings == ()
    # 4.9 has no timers: it does not read the key.
    assert config.timer_wheel_enable is False
    assert config.unknown == {"namesrvAddr": "10.0.0.1:9876", "timerWheelEnable": "true"}


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("maxIndexNum=200 ", "20000000"),
        ("maxIndexNum=0x10", "20000000"),
        ("maxIndexNum=1_000", "20000000"),
        ("maxIndexNum=2147483648", "20000000"),
        ("maxIndexNum=", "20000000"),
        (f"maxIndexNum={'9' * 5000}", "20000000"),
        ("brokerId=9223372036854775808", "0"),
        ("flushDiskType=sync_flush", "ASYNC_FLUSH"),
        ("logicalDiskSpaceCleanForciblyThreshold=80%", "0.8"),
    ],
)
def test_what_a_broker_cannot_convert_is_ignored_and_reported(line: str, kept: str) -> None:
    config = StoreConfig.default().with_broker_conf(line, "conf/b.conf")
    name = line.partition("=")[0]
    assert config.text(name) == kept
    assert config.origin(name) is Origin.DEFAULT
    [finding] = config.findings
    assert (finding.code, finding.severity, finding.file) == ("CF-CONF", Severity.WARNING, "conf/b.conf")
    assert name in finding.message
    assert kept in finding.message


@pytest.mark.parametrize("text", ["abc", "1s 5q", "1s,5s", "1s  5s", "s", "", "9223372036854775808s", "9" * 5000 + "s"])
def test_delay_levels_with_which_a_broker_does_not_start_are_an_error(text: str) -> None:
    """The default levels are kept, so that the messages of such a store can be read."""
    config = StoreConfig.default().with_broker_conf(f"messageDelayLevel={text}")
    assert config.message_delay_level == StoreConfig.default().message_delay_level
    [finding] = config.findings
    assert (finding.code, finding.severity) == ("CF-CONF", Severity.ERROR)
    assert finding.consequence == "a broker does not start"


@pytest.mark.parametrize("text", ["1s", "1s 5s 10m 2h 1d", "1s 2s ", "+5s -1s", "9223372036854775807d"])
def test_delay_levels_are_taken(text: str) -> None:
    config = StoreConfig.default().with_broker_conf(f"messageDelayLevel={text}")
    assert (config.message_delay_level, config.findings) == (text.strip(), ())


@pytest.mark.parametrize("text", ["yes", "1", "true ", ""])
def test_what_is_not_true_is_false_and_reported(text: str) -> None:
    config = StoreConfig.default().with_broker_conf(f"checkCRCOnRecover={text}")
    assert config.check_crc_on_recover is False
    assert config.origin("checkCRCOnRecover") is Origin.BROKER_CONF
    assert [finding.severity for finding in config.findings] == [Severity.WARNING]


def test_only_five_trims_texts() -> None:
    conf = "storePathRootDir=/data/store \nflushDiskType=SYNC_FLUSH "
    old, new = (StoreConfig.default(version).with_broker_conf(conf) for version in (Version.V4_9, Version.V5_3))
    assert (old.store_path_root_dir, old.flush_disk_type, len(old.findings)) == (
        "/data/store ",
        FlushDiskType.ASYNC_FLUSH,
        1,
    )
    assert (new.store_path_root_dir, new.flush_disk_type, new.findings) == (
        "/data/store",
        FlushDiskType.SYNC_FLUSH,
        (),
    )


def test_assignments_override_and_are_strict() -> None:
    config = StoreConfig.default(Version.V5_4).with_broker_conf("commitLogRecoverMaxNum=20")
    changed = config.with_assignments(["commitLogRecoverMaxNum=100", " messageIndexSafe = True "])
    assert (changed.commit_log_recover_max_num, changed.message_index_safe) == (100, True)
    assert changed.origin("commitLogRecoverMaxNum") is Origin.COMMAND_LINE
    assert (config.commit_log_recover_max_num, config.message_index_safe) == (20, False)


@pytest.mark.parametrize(
    ("assignment", "message", "hint"),
    [
        ("messageIndexSafe", '"messageIndexSafe" is not KEY=VALUE', "checkCRCOnRecover=false"),
        ("messageIndexSaef=true", "messageIndexSaef is not a setting", "did you mean messageIndexSafe?"),
        ("messageIndexSafe=yes", "neither true nor false", "--conf messageIndexSafe=true"),
        ("maxIndexNum=many", "maxIndexNum=many is not a whole number", "the default is 20000000"),
        ("messageDelayLevel=1s 5q", "messageDelayLevel=1s 5q is not a list of delays", "the default is 1s 5s 10s"),
        ("commitLogRecoverMaxNum=100", "new in 5.4; a 5.3 broker does not read it", "--as 5.4"),
        ("brokerRole=MASTER", "one of ASYNC_MASTER, SYNC_MASTER, SLAVE", "the default is ASYNC_MASTER"),
    ],
)
def test_a_wrong_assignment_says_what_is_wrong(assignment: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        StoreConfig.default(Version.V5_3).with_assignments([assignment])
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_another_version_keeps_what_was_set_and_reads_its_own_keys() -> None:
    conf = "commitLogRecoverMaxNum=7\nmaxIndexNum=300\nnamesrvAddr=x"
    old = StoreConfig.default(Version.V4_9).with_broker_conf(conf)
    assert (old.commit_log_recover_max_num, old.transaction_check_interval) == (None, 60_000)
    new = old.as_version(Version.V5_4)
    assert (new.commit_log_recover_max_num, new.max_index_num, new.transaction_check_interval) == (7, 300, 30_000)
    assert new.unknown == {"namesrvAddr": "x"}
    back = new.as_version(Version.V4_9)
    assert (back.commit_log_recover_max_num, back.max_index_num) == (None, 300)
    assert back.origins == old.origins
    assert back.unknown == old.unknown


def test_directories_of_the_commit_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/rocket")
    default = StoreConfig.default()
    assert default.root_dir == "/home/rocket/store"
    assert default.commit_log_dirs == ("/home/rocket/store/commitlog",)
    assert default.read_only_commit_log_dirs == ()
    several = default.with_broker_conf(
        "storePathRootDir=/data/store\nstorePathCommitLog=$ROOT/b,/ssd/a,,$ROOT/b\n"
        "readOnlyCommitLogStorePaths=${user.home}/old"
    )
    assert several.commit_log_dirs == ("/data/store/b", "/ssd/a")
    assert several.read_only_commit_log_dirs == ("/home/rocket/old",)


def test_a_store_that_was_moved_takes_the_paths_beneath_it_along() -> None:
    config = StoreConfig.default().with_broker_conf(
        "storePathRootDir=/data/store/\nstorePathCommitLog=/data/store/a,/ssd/log,/data/stores/b,$ROOT/c"
    )
    moved = config.at_root("/mnt/copy")
    assert moved.root_dir == "/mnt/copy"
    assert moved.commit_log_dirs == ("/data/stores/b", "/mnt/copy/a", "/mnt/copy/c", "/ssd/log")
    assert StoreConfig.default().at_root("/mnt/copy").commit_log_dirs == ("/mnt/copy/commitlog",)
    assert StoreConfig.default().at_root("/mnt/copy").origin("storePathRootDir") is Origin.STORE


@pytest.mark.parametrize(
    "name",
    [
        "accessKey",
        "secretKey",
        "tieredStoreObjectStorageSecretKey",
        "innerClientAuthenticationCredentials",
        "initAuthenticationUser",
        "tls.server.keyPassword",
        "tls.client.key_passwd",
    ],
)
def test_secrets_are_masked_wherever_they_are_shown(name: str) -> None:
    assert is_secret(name)
    config = StoreConfig.default().with_broker_conf(f"{name}=hunter2")
    shown = {line.name: line.value for line in config.iter_shown()}
    assert shown[name] == MASK
    assert "hunter2" not in "".join(shown.values())
    assert config.unknown[name] == "hunter2"


def test_no_setting_of_the_table_is_taken_for_a_secret() -> None:
    assert [name for name in SETTINGS if is_secret(name)] == []


def test_shown_lines_have_value_origin_and_words() -> None:
    config = StoreConfig.default().with_values({"enableLmq": True}, Origin.STORE)
    lines = {line.name: line for line in config.iter_shown()}
    assert lines["enableLmq"] == ("enableLmq", "true", Origin.STORE, "light queues")
    assert lines["storePathCommitLog"].value == ""
    assert all(line.about for line in lines.values())


def read_settings() -> set[str]:
    """Return the settings whose attribute is read anywhere in the package but in their table."""
    package = Path(rmqtool.__file__).parent
    read: set[str] = set()
    for path in package.rglob("*.py"):
        # A client knows brokers by their ids, and no store: its ``broker_id`` is not the setting.
        if path != package / "config/settings.py" and package / "client" not in path.parents:
            nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            loads = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)]
            # Nor is that in a request's header, or in a slave's greeting.
            read |= {node.attr for node in loads if ast.unparse(node.value) not in ("header", "greeting")}
    return {name for name, row in SETTINGS.items() if row.attribute in read}


def test_what_no_code_reads_is_known_as_unused() -> None:
    assert SETTINGS.keys() - read_settings() == set(UNUSED)


def test_an_unused_setting_is_refused_or_shown_as_such() -> None:
    assert "recoverConcurrently" in UNUSED
    for name in UNUSED:
        row = SETTINGS[name]
        with pytest.raises(UsageError, match=f"rmqtool does not use {name}"):
            StoreConfig.default(Version.V5_4).with_assignments([f"{name}={row.defaults[Version.V5_4]}"])
    config = StoreConfig.default(Version.V5_3)
    assert not {line.name for line in config.iter_shown()} & UNUSED
    lines = {line.name: line for line in config.with_broker_conf("recoverConcurrently=false\nmine=1").iter_shown()}
    for name, value in (("recoverConcurrently", "false"), ("mine", "1")):
        assert (lines[name].value, lines[name].about) == (value, "not used by rmqtool")
    # A broker.conf that is written is for a broker, too.
    made = config.with_assignments(["longPollingEnable=false"], takes_unused=True)
    assert "longPollingEnable=false" in made.encode_broker_conf()


def test_a_written_broker_conf_reads_back_the_same() -> None:
    config = StoreConfig.default(Version.V5_3).with_values(
        {
            "storePathRootDir": "/data/经纪 store",
            "mappedFileSizeCommitLog": 65_536,
            "flushDiskType": FlushDiskType.SYNC_FLUSH,
            "checkCRCOnRecover": False,
            "logicalDiskSpaceCleanForciblyThreshold": 0.5,
        },
        Origin.COMMAND_LINE,
    )
    text = config.encode_broker_conf(("a store",))
    assert text.splitlines()[0] == "# a store"
    assert "mappedFileSizeCommitLog=65536" in text.splitlines()
    again = StoreConfig.default(Version.V5_3).with_broker_conf(text.encode("ascii"))
    assert again.findings == ()
    assert {name: again.value(name) for name in SETTINGS} == {name: config.value(name) for name in SETTINGS}
    assert set(again.origins) == set(config.origins)
