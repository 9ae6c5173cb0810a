"""tokenizer - a small byte-level BPE in the format of CLIP's tokenizer (vocab.json, merges.txt).

Words are lower-cased, split by CLIP's expression and end in </w>. Training counts captions, the names of
all objects and CLDR's names of all emoji: 256 bytes, 256 last bytes, 1534 merges, start and end make 2048.
usage: tokenizer.py [--captions 20000]
SPDX-License-Identifier: MIT
"""
import argparse
import collections
import json
import os
import re
import xml.etree.ElementTree

from settings import CONTEXT, DATA_DIR, TOKENIZER_DIR, VOCABULARY

START, END = "<|startoftext|>", "<|endoftext|>"
# CLIP's expression; [^\W\d_] are letters, \d stands for one digit at a time
WORD = re.compile(r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[^\W\d_]+|\d|(?:[^\s\w]|_)+",
                  re.IGNORECASE)


def byte_letters():
    """The printable character that stands for each byte, as in GPT-2."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in printable}
    for b in range(256):
        if b not in letters:
            letters[b] = chr(256 + len(letters) - len(printable))
    return {b: letters[b] for b in printable + [b for b in range(256) if b not in printable]}


BYTE_LETTERS = byte_letters()


def split_words(text):
    text = re.sub(r"\s+", " ", text).strip().lower()
    return ["".join(BYTE_LETTERS[b] for b in w.encode()) for w in WORD.findall(text)]


def join_pair(symbols, pair):
    out, i = [], 0
    while i < len(symbols):
        if tuple(symbols[i:i + 2]) == pair:
            out.append(symbols[i] + symbols[i + 1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


def train(weighted_texts, size, folder):
    """Write vocab.json and merges.txt learned from (text, weight) pairs."""
    count = collections.Counter()
    for text, weight in weighted_texts:
        for word in split_words(text):
            count[word] += weight
    letters = list(BYTE_LETTERS.values())
    vocabulary, merges = letters + [c + "</w>" for c in letters], []
    words = {w: list(w[:-1]) + [w[-1] + "</w>"] for w in count}
    while len(vocabulary) + 2 < size:
        pairs = collections.Counter()
        for word, symbols in words.items():
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += count[word]
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        merges.append(best)
        vocabulary.append("".join(best))
        for word, symbols in words.items():
            if best[0] in symbols:
                words[word] = join_pair(symbols, best)
    vocabulary += [START, END]
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "vocab.json"), "w") as f:
        json.dump({v: i for i, v in enumerate(vocabulary)}, f, ensure_ascii=False)
    with open(os.path.join(folder, "merges.txt"), "w") as f:
        f.write("#version: 0.2\n" + "".join("%s %s\n" % m for m in merges))


class Tokenizer:
    """text -> CONTEXT ids: start, the words, end, padded with end"""

    def __init__(self, folder=TOKENIZER_DIR, context=CONTEXT):
        with open(os.path.join(folder, "vocab.json")) as f:
            self.id_of = json.load(f)
        with open(os.path.join(folder, "merges.txt")) as f:
            merges = [tuple(line.split()) for line in f.read().split("\n")[1:] if line]
        self.rank = {m: i for i, m in enumerate(merges)}
        self.context, self.known = context, {}

    def word_ids(self, word):
        if word not in self.known:
            symbols = list(word[:-1]) + [word[-1] + "</w>"]
            while len(symbols) > 1:
                pairs = [p for p in zip(symbols, symbols[1:]) if p in self.rank]
                if not pairs:
                    break
                symbols = join_pair(symbols, min(pairs, key=self.rank.get))
            self.known[word] = [self.id_of[s] for s in symbols]
        return self.known[word]

    def __call__(self, text):
        ids = [i for w in split_words(text) for i in self.word_ids(w)][:self.context - 2]
        ids = [self.id_of[START]] + ids + [self.id_of[END]]
        return ids + [self.id_of[END]] * (self.context - len(ids))


def main():
    from data import CLDR, Source
    from vocabulary import OBJECTS
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("--captions", type=int, default=20000)
    p.add_argument("--out", default=TOKENIZER_DIR)
    args = p.parse_args()
    source = Source(5)
    texts = [(source.describe(*source.pick()), 1) for _ in range(args.captions)]
    texts += [(name, 20) for names in OBJECTS.values() for name in names]
    for e in xml.etree.ElementTree.parse(os.path.join(DATA_DIR, CLDR)).getroot().iter("annotation"):
        if e.get("type") == "tts":
            texts.append((e.text, 2))
    train(texts, VOCABULARY, args.out)
    tokenizer = Tokenizer(args.out)
    lengths = [len([i for i in tokenizer(t) if i != tokenizer.id_of[END]]) for t, _ in texts[:5000]]
    print("%s: longest caption %d tokens, mean %.1f" % (args.out, max(lengths),
                                                      sum(lengths) / len(lengths)))


if __name__ == "__main__":
    main()
