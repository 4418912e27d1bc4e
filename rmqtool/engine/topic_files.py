"""The queues of a topic that is deleted. Its records stay in the log until they expire.

Upstream: ``DefaultMessageStore.deleteTopics``.
"""

from __future__ import annotations

from rmqtool.engine.encoder import is_directory_name
from rmqtool.formats.paths import BATCH_CONSUME_QUEUE, CONSUME_QUEUE, CONSUME_QUEUE_EXT
from rmqtool.storage.filesystem import Kind, WritableFileSystem, join, split


def remove_queues(files: WritableFileSystem, topic: str) -> None:
    """Remove all queues of a topic from a store that nobody has open."""
    if not is_directory_name(topic):
        return
    for tree in (CONSUME_QUEUE, CONSUME_QUEUE_EXT, BATCH_CONSUME_QUEUE):
        directory = join(tree, topic)
        if files.is_directory(directory):
            _remove(files, directory)


def _remove(files: WritableFileSystem, directory: str) -> None:
    for entry in files.listdir(directory):
        path = join(directory, entry.name)
        if entry.kind is Kind.DIRECTORY:
            _remove(files, path)
        else:
            files.unlink(path)
    files.rmdir(directory)
    files.fsync_dir(split(directory)[0])
