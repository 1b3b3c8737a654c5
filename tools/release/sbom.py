# SPDX-License-Identifier: Apache-2.0
"""The bill of materials of an image, in SPDX 2.3: packages of Debian, crates and wheels.

Debian's packages come from the records in the image, crates from worker/tokenizer/ffi/Cargo.lock with the licences that
THIRD_PARTY_NOTICES.md has, wheels from tools/wheels.txt (tools/cuda.txt beside it for GPUs).
"""

import hashlib
import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN = "Apache-2.0"
# Wheels of tools/wheels.txt of which the worker has libraries; the others are headers that the compiler reads.
WHEELS = {"torch", "nvidia-cuda-runtime", "nvidia-cuda-cupti"}
REFERENCE = re.compile(r"LicenseRef-[A-Za-z0-9.-]+")


def debian(records):
    """Yields an entry for each record (a paragraph of dpkg's status)."""
    for record in records:
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", record, re.M))
        name, version, architecture = fields["Package"], fields["Version"], fields["Architecture"]
        # A purl writes a plus as %2B and a colon as %3A.
        place = f"pkg:deb/debian/{escaped(name)}@{escaped(version)}?arch={architecture}&distro=trixie"
        comment = f"The licences stand in /usr/share/doc/{name}/copyright of the image."
        yield entry("deb", name, version, place, comment=comment)


def licences(heading):
    """Returns {(name, version): licence} of a table in THIRD_PARTY_NOTICES.md."""
    text = (ROOT / "THIRD_PARTY_NOTICES.md").read_text()
    table = re.search(rf"^## {heading}.*?$(.*?)(?=^## |\Z)", text, re.M | re.S)[1]
    rows = re.findall(r"^\| (\S+) \| (\S+) \| (.+?) \|$", table, re.M)
    # Old crates write "MIT/Apache-2.0" for a choice, which is no expression of SPDX.
    return {(name, version): licence.replace("/", " OR ") for name, version, licence in rows}


def crates():
    """Yields an entry for each crate that is linked into the worker."""
    known = licences("Rust crates")
    lock = tomllib.loads((ROOT / "worker/tokenizer/ffi/Cargo.lock").read_text())
    for package in lock["package"]:
        if "source" not in package:
            continue  # our own
        name, version = package["name"], package["version"]
        if (name, version) not in known:
            raise ValueError(f"THIRD_PARTY_NOTICES.md has no crate {name} {version}: run tools/notices.py")
        place = f"pkg:cargo/{name}@{escaped(version)}"
        yield entry("cargo", name, version, place, known[name, version], sha256=package.get("checksum"))


def wheels(cuda):
    """Yields an entry for each wheel of which the image has libraries."""
    known = licences("Python wheels")
    lists = ["wheels.txt", "cuda.txt"] if cuda else ["wheels.txt"]
    for text in lists:
        for name, version in re.findall(r"^([\w.-]+)==([\w.+-]+)", (ROOT / "tools" / text).read_text(), re.M):
            if cuda or name in WHEELS:
                licence = known.get((name, version), "NOASSERTION")
                yield entry("pypi", name, version, f"pkg:pypi/{name}@{escaped(version)}", licence)


def escaped(text):
    return text.replace("+", "%2B").replace(":", "%3A")


def entry(kind, name, version, place, licence="NOASSERTION", *, sha256=None, comment=None):
    found = {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", f"{kind}-{name}-{version}"),
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
        "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": place}],
    }
    if sha256:
        found["checksums"] = [{"algorithm": "SHA256", "checksumValue": sha256}]
    if comment:
        found["licenseComments"] = comment
    return found


def document(name, version, digest, created, parts):
    """Returns the document of an image: `digest` is the image's, `created` a time such as 2026-01-31T12:00:00Z."""
    place = f"pkg:oci/{name}@{escaped(digest)}"
    image = entry("image", name, version, place, OWN, sha256=digest.partition(":")[2])
    image |= {"primaryPackagePurpose": "CONTAINER"}
    parts = sorted(parts, key=lambda part: part["SPDXID"])
    identity = hashlib.sha256(repr([digest, *(part["SPDXID"] for part in parts)]).encode()).hexdigest()[:32]
    references = sorted({one for part in parts for one in REFERENCE.findall(part["licenseDeclared"])})
    made = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{name}-{version}",
        "documentNamespace": f"https://parallelmodel.dev/spdx/{name}-{version}-{identity}",
        "creationInfo": {"created": created, "creators": ["Tool: parallelmodel-release"]},
        "packages": [image, *parts],
        "relationships": [
            {
                "spdxElementId": "SPDXRef-DOCUMENT",
                "relationshipType": "DESCRIBES",
                "relatedSpdxElement": image["SPDXID"],
            },
            *(
                {
                    "spdxElementId": image["SPDXID"],
                    "relationshipType": "CONTAINS",
                    "relatedSpdxElement": part["SPDXID"],
                }
                for part in parts
            ),
        ],
    }
    if references:
        made["hasExtractedLicensingInfos"] = [
            {"licenseId": one, "name": one, "extractedText": "The licence files of the wheel have its text."}
            for one in references
        ]
    return made
