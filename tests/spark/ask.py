"""Ask messages a question in Spark SQL: of an export, and of the store's own files. The end of ``make demo``.

python -m tests.spark.ask EXPORT STORE
"""

from __future__ import annotations

import sys
import tempfile

from rmqtool.errors import Exit, OptionalMissing

QUESTION = """\
SELECT topic, count(*) AS messages, count(DISTINCT keys) AS keys, max(octet_length(body)) AS longest,
       max(store_timestamp) AS latest
FROM {source} WHERE topic NOT LIKE 'rmq\\\\_%' GROUP BY topic ORDER BY messages DESC, topic LIMIT 5"""


def main(export: str, store: str) -> int:
    """Ask both; return whether they agree."""
    from rmqtool.spark import session

    with tempfile.TemporaryFile() as log:
        try:
            spark = session(conf={"spark.sql.session.timeZone": "UTC"}, log=log)
        except OptionalMissing as missing:
            print(f"{missing.message}: {missing.hint}", file=sys.stderr)
            return Exit.OPTIONAL_MISSING
        spark.sql(f"CREATE TEMPORARY VIEW messages USING rocketmq OPTIONS (path '{store}')")
        print(QUESTION.format(source=f"parquet.`{export}`"))
        answer = spark.sql(QUESTION.format(source=f"parquet.`{export}`"))
        answer.show(truncate=False)
        agree = answer.collect() == spark.sql(QUESTION.format(source="messages")).collect()
        print("The store's own files, read by USING rocketmq, give", "the same." if agree else "something else.")
        spark.stop()
    return Exit.DONE if agree else Exit.NO


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
