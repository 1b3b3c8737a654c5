# SPDX-License-Identifier: Apache-2.0
"""The chart of a release: its version, and the images with their registry and digest as default values."""

import re


def pinned(files, version, images):
    """Returns {path: bytes} of the chart with another version and images.

    `files` are those of the chart in the repository; `images` is {name: (repository, digest)}, the digest "" for an
    image that the release does not have, which keeps its tag, the version. Raises ValueError when Chart.yaml or
    values.yaml has no place for one of them, so that no release names an image that nobody has.
    """
    found = {name: data.decode() for name, data in files.items() if name in ("Chart.yaml", "values.yaml")}
    for key in ("version", "appVersion"):
        replace(found, "Chart.yaml", rf"^{key}: .*$", f"{key}: {version}")
    for name, (repository, digest) in images.items():
        place = rf'\{{repository: {re.escape(name)}, tag: "", digest: ""'
        replace(found, "values.yaml", place, f'{{repository: {repository}, tag: "", digest: "{digest}"')
    return files | {name: text.encode() for name, text in found.items()}


def replace(texts, name, pattern, text):
    texts[name], count = re.subn(pattern, lambda _: text, texts[name], flags=re.M)
    if count != 1:
        raise ValueError(f"{name} of the chart has {count} lines like {pattern}, expected one")
