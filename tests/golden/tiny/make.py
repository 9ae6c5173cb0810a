"""make - write the numbers of this folder again: python3 make.py (Debian's python3-torch).

python3 make.py FILE.safetensors writes random weights of TAESD's size there instead, for measuring.

An implementation of its own, from the description in README.md, that shares nothing with models/train.
SPDX-License-Identifier: MIT
"""
import json
import os
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
KINDS = {np.dtype("float16"): "F16", np.dtype("float32"): "F32"}


def write(path, tensors):
    header, at, blobs = {}, 0, []
    for name, value in tensors.items():
        array = value.contiguous().numpy()
        header[name] = {"dtype": KINDS[array.dtype], "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
        blobs.append(array.tobytes())
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path = os.path.join(HERE, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


class Layers:
    """Random layers in order; ("gap",) stands for those without weights."""

    def __init__(self, seed):
        self.random, self.list = torch.Generator().manual_seed(seed), []

    def conv(self, c_in, c_out, side=3, bias=True, gain=1.):
        w = torch.randn(c_out, c_in, side, side, generator=self.random)
        w *= gain * (2 / (c_in * side * side)) ** .5
        b = torch.randn(c_out, generator=self.random) * .1 if bias else None
        return [None if t is None else t.half().float() for t in (w, b)]

    def add(self, widths, blocks, latent, grow=0):
        """grow: by so many channels does the first block of each level widen its map"""
        self.list += [("conv", self.conv(latent, widths[0])), ("gap",)]
        c = widths[0]
        for level, n in enumerate(blocks):
            if level:
                self.list += [("gap",), ("up", self.conv(c, widths[level], bias=False))]
                c = widths[level]
            for k in range(n):
                to = c + grow if k == 0 else c
                parts = [self.conv(c, to), self.conv(to, to), self.conv(to, to, gain=.3)]
                self.list.append(("block", parts, self.conv(c, to, 1, False) if to != c else None))
                c = to
        self.list.append(("conv", self.conv(c, 3, gain=.3)))
        return self

    def tensors(self, prefix, first, half):
        out = {}

        def put(name, pair):
            for key, t in zip(("weight", "bias"), pair):
                if t is not None:
                    out["%s%d.%s%s" % (prefix, first + i, name, key)] = t.half() if half else t
        for i, layer in enumerate(self.list):
            if layer[0] in ("conv", "up"):
                put("", layer[1])
            elif layer[0] == "block":
                for k, pair in enumerate(layer[1]):
                    put("conv.%d." % (2 * k), pair)
                if layer[2]:
                    put("skip.", layer[2])
        return out

    def decode(self, z):
        x = (3 * torch.tanh(z.double() / 3))
        for i, layer in enumerate(self.list):
            if layer[0] == "gap":
                continue
            if layer[0] == "block":
                y = x
                for k, (w, b) in enumerate(layer[1]):
                    y = F.conv2d(y, w.double(), b.double(), padding=1)
                    y = y.clamp(min=0) if k < 2 else y
                x = (y + (x if layer[2] is None else F.conv2d(x, layer[2][0].double()))).clamp(min=0)
                continue
            if layer[0] == "up":
                x = x.repeat_interleave(2, 2).repeat_interleave(2, 3)
            w, b = layer[1]
            x = F.conv2d(x, w.double(), None if b is None else b.double(), padding=1)
            x = x.clamp(min=0) if i == 0 else x
        return (2 * x - 1).float()


def main():
    if len(sys.argv) > 1:
        full = Layers(5).add([64] * 4, [3, 3, 3, 1], 4)
        return write(os.path.abspath(sys.argv[1]), full.tensors("", 1, True))
    even = Layers(1).add([8, 8, 8, 8], [2, 1, 1, 0], 4)
    odd = Layers(2).add([6, 10], [1, 2], 4, grow=2)
    random, golden = torch.Generator().manual_seed(3), {}
    for name, net, shape in (("even.a8x8", even, (1, 4, 8, 8)), ("even.b5x3", even, (2, 4, 5, 3)),
                             ("odd.a7x6", odd, (1, 4, 7, 6))):
        golden[name + ".z"] = torch.randn(shape, generator=random) * 2
        golden[name + ".out"] = net.decode(golden[name + ".z"])
    write("golden.safetensors", golden)
    write("vae_tiny/diffusion_pytorch_model.safetensors", even.tensors("decoder.layers.", 0, True))
    write("taesd_decoder.safetensors", even.tensors("", 1, True))
    write("combined.safetensors", {"vae_scale": torch.tensor(0.18215),
                                   **even.tensors("taesd_decoder.", 1, False)})
    write("odd_decoder.safetensors", odd.tensors("", 1, True))
    sixteen = Layers(4).add([8, 8, 8, 8], [0, 0, 0, 0], 16)
    write("sixteen.safetensors", sixteen.tensors("decoder.layers.", 0, True))
    torch.save(even.tensors("", 1, True), os.path.join(HERE, "taesd_decoder.pth"))
    with open(os.path.join(HERE, "vae_tiny/config.json"), "w") as f:
        json.dump({"_class_name": "AutoencoderTiny", "act_fn": "relu", "in_channels": 3, "out_channels": 3,
                   "latent_channels": 4, "upsampling_scaling_factor": 2, "upsample_fn": "nearest",
                   "num_decoder_blocks": [2, 1, 1, 0], "decoder_block_out_channels": [8, 8, 8, 8],
                   "num_encoder_blocks": [1, 1, 1, 1], "encoder_block_out_channels": [8, 8, 8, 8],
                   "latent_magnitude": 3, "latent_shift": 0.5, "scaling_factor": 1.0, "force_upcast": False},
                  f, indent=1)
        f.write("\n")
    for name, value in golden.items():
        print(name, tuple(value.shape), "largest %.3f" % value.abs().max())


if __name__ == "__main__":
    main()
