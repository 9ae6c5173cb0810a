"""fetch - get the art and the names, and refuse to go on if a licence is not the expected one.

  fonts-noto-color-emoji  Debian package: the pictures (art Apache-2.0, font file OFL-1.1)
  unicode-cldr-core       Debian package: English emoji names, words for the tokenizer (Unicode-DFS-2016)
  emoji-datasource-google npm package: which code point has which short name (MIT)

Needs Debian's apt-get and dpkg, and npm. Everything lands in DR_WORK/data; what is there is kept.
SPDX-License-Identifier: MIT
"""
import argparse
import glob
import json
import os
import subprocess
import tarfile

from settings import DATA_DIR

DEBIAN = {"fonts-noto-color-emoji": ["Apache-2.0", "SIL-1.1"], "unicode-cldr-core": ["Unicode-DFS-2016"]}
NPM = ("emoji-datasource-google", "16.0.0", "MIT")


def run(*command):
    subprocess.run(command, cwd=DATA_DIR, check=True, stdout=subprocess.DEVNULL)


def require(found, expected, what):
    missing = [name for name in expected if name not in found]
    if missing:
        raise SystemExit("%s: its licence file does not mention %s; read it before you train on this" % (
            what, ", ".join(missing)))
    print("%s: %s" % (what, ", ".join(expected)))


def fetch_debian(name, licences):
    copyright_file = os.path.join(DATA_DIR, "deb/usr/share/doc", name, "copyright")
    if not os.path.exists(copyright_file):
        run("apt-get", "download", name)
        run("dpkg", "-x", os.path.basename(glob.glob(os.path.join(DATA_DIR, name + "_*.deb"))[0]), "deb")
    with open(copyright_file) as f:
        require(f.read(), licences, name)


def fetch_npm(name, version, licence):
    folder = os.path.join(DATA_DIR, "emoji")
    if not os.path.exists(os.path.join(folder, "emoji.json")):
        run("npm", "pack", "--silent", "%s@%s" % (name, version))
        with tarfile.open(os.path.join(DATA_DIR, "%s-%s.tgz" % (name, version))) as tar:
            os.makedirs(folder, exist_ok=True)
            for part in ("emoji.json", "package.json", "LICENSE"):
                with open(os.path.join(folder, part), "wb") as f:
                    f.write(tar.extractfile("package/" + part).read())
    with open(os.path.join(folder, "package.json")) as f:
        require([json.load(f)["license"]], [licence], name)


def main():
    argparse.ArgumentParser(description=__doc__,
                            formatter_class=argparse.RawTextHelpFormatter).parse_args()
    os.makedirs(DATA_DIR, exist_ok=True)
    for name, licences in DEBIAN.items():
        fetch_debian(name, licences)
    fetch_npm(*NPM)


if __name__ == "__main__":
    main()
