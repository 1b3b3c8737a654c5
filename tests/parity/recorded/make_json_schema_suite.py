# SPDX-License-Identifier: Apache-2.0
"""Makes json_schema_suite.json: drafts 7 and 2020-12 of the JSON-Schema-Test-Suite, without formats that are not
supported. The archive is the source distribution of jsonschema 4.26.0, which has a copy,
`pip download --no-binary jsonschema --no-deps jsonschema==4.26.0`:

    python make_json_schema_suite.py jsonschema-4.26.0.tar.gz json_schema_suite.json

The licence of the suite is json_schema_suite.LICENSE.
"""

import hashlib
import json
import re
import sys
import tarfile
from pathlib import Path

SHA256 = "0c26707e2efad8aa1bfc5b7ce170f3fccc2e4918ff85989ba9ffa9facb2be326"
DRAFTS = {
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
FORMATS = "date date-time duration email hostname ipv4 ipv6 time uri uuid".split()


def wanted(name):
    _, _, path = name.partition("/json/tests/")
    draft, _, file = path.partition("/")
    in_format = file.startswith("optional/format/")
    return draft in DRAFTS and file.endswith(".json") and (not in_format or Path(file).stem in FORMATS)


def load(file):
    """JSON in which fractions are texts between number signs, so that they keep their digits."""
    return json.load(file, parse_float="#{}#".format)


def main(archive, out):
    assert hashlib.sha256(Path(archive).read_bytes()).hexdigest() == SHA256, f"{archive} is another one"
    groups = []
    with tarfile.open(archive) as tar:
        for member in sorted(filter(lambda one: wanted(one.name), tar), key=lambda one: one.name):
            path = member.name.partition("/json/tests/")[2].removesuffix(".json")
            for group in load(tar.extractfile(member)):
                schema = group["schema"]
                if isinstance(schema, dict) and "$schema" not in schema:
                    schema = {"$schema": DRAFTS[path.partition("/")[0]], **schema}
                tests = [[test["description"], test["valid"], test["data"]] for test in group["tests"]]
                groups.append({"name": f"{path}: {group['description']}", "schema": schema, "tests": tests})
    lines = ",\n".join(json.dumps(group, separators=(",", ":")) for group in groups)
    Path(out).write_text(re.sub(r'"#([-+.\deE]+)#"', r"\1", f"[\n{lines}\n]\n"))


main(*sys.argv[1:])
