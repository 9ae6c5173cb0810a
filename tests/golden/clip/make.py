"""make - a small random CLIP with both towers, in two spellings, and what it makes of three pictures and three texts.

Everything is computed without darkroom's code: the networks with torch's functions in f64, pictures with Pillow as transformers'
CLIPImageProcessor prepares them. Token ids are those of the reference tokenizer in ../models/tiny-sd2/golden_text.safetensors.
Needs Debian's python3-torch, python3-numpy and python3-pil. README.md says what the files hold.
SPDX-License-Identifier: MIT
"""
import json
import os
import struct

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))
VOCABULARY, CONTEXT = 1000, 77
TEXT_WIDTH, VISION_WIDTH, PROJECTION, LAYERS = 32, 48, 24, 2
IMAGE, PATCH = 32, 8
MEAN, STD = [0.5, 0.4, 0.45], [0.25, 0.3, 0.2]  # of the folder; the single file has none and gets CLIP's own
CLIP_MEAN = [0.48145466, 0.4578275, 0.40821073]
CLIP_STD = [0.26862954, 0.26130258, 0.27577711]


# ---- files ---------------------------------------------------------------------------------------------------------------------

def read(path):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    kinds = {"F32": np.float32, "F16": np.float16, "I32": np.int32}
    out = {}
    for name, e in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + o for o in e["data_offsets"])
            out[name] = np.frombuffer(data[begin:end], kinds[e["dtype"]]).reshape(e["shape"])
    return out


def write(path, tensors):
    """tensors: {name: (dtype, shape, bytes)}"""
    header, blobs, offset = {}, [], 0
    for name in sorted(tensors):
        kind, shape, blob = tensors[name]
        header[name] = dict(dtype=kind, shape=list(shape), data_offsets=[offset, offset + len(blob)])
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def f16(x):
    return "F16", x.shape, x.numpy().astype(np.float16).tobytes()


def bf16(x):
    bits = x.numpy().astype(np.float32).view(np.uint32)
    assert not (bits & 0xffff).any()
    return "BF16", x.shape, (bits >> 16).astype(np.uint16).tobytes()


def f32(x):
    x = np.ascontiguousarray(x, np.float32)
    return "F32", x.shape, x.tobytes()


# ---- weights: exactly representable in f16 and in bf16 -------------------------------------------------------------------------

def random_weights():
    generator = torch.Generator().manual_seed(20)
    w = {}

    def put(name, *shape, scale=None, mean=0.0):
        x = torch.randn(*shape, generator=generator) * (scale or shape[-1] ** -0.5) + mean
        x = (x.numpy().view(np.uint32) & 0xffff0000).view(np.float32)
        w[name] = torch.from_numpy(np.where(np.abs(x) < 2 ** -12, 0, x).astype(np.float32))

    def tower(prefix, c):
        for i in range(LAYERS):
            p = "%s.encoder.layers.%d." % (prefix, i)
            for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
                put(p + "self_attn.%s.weight" % name, c, c, scale=1.5 * c ** -0.5)
                put(p + "self_attn.%s.bias" % name, c, scale=.1)
            put(p + "mlp.fc1.weight", 2 * c, c)
            put(p + "mlp.fc1.bias", 2 * c, scale=.1)
            put(p + "mlp.fc2.weight", c, 2 * c)
            put(p + "mlp.fc2.bias", c, scale=.1)
            for name in ("layer_norm1", "layer_norm2"):
                norm(p + name, c)

    def norm(name, c):
        put(name + ".weight", c, scale=.2, mean=1.0)
        put(name + ".bias", c, scale=.2)

    put("text_model.embeddings.token_embedding.weight", VOCABULARY, TEXT_WIDTH, scale=.5)
    put("text_model.embeddings.position_embedding.weight", CONTEXT, TEXT_WIDTH, scale=.3)
    tower("text_model", TEXT_WIDTH)
    norm("text_model.final_layer_norm", TEXT_WIDTH)
    put("text_projection.weight", PROJECTION, TEXT_WIDTH)
    put("vision_model.embeddings.class_embedding", VISION_WIDTH, scale=.5)
    put("vision_model.embeddings.patch_embedding.weight", VISION_WIDTH, 3, PATCH, PATCH, scale=.08)
    put("vision_model.embeddings.position_embedding.weight", (IMAGE // PATCH) ** 2 + 1, VISION_WIDTH, scale=.3)
    norm("vision_model.pre_layrnorm", VISION_WIDTH)
    tower("vision_model", VISION_WIDTH)
    norm("vision_model.post_layernorm", VISION_WIDTH)
    put("visual_projection.weight", PROJECTION, VISION_WIDTH)
    return w


def openai_names(w):
    """The same weights as OpenAI's and OpenCLIP's files spell them."""
    out = {"logit_scale": torch.tensor(2.65625)}
    for ours, theirs in (("text_model", ""), ("vision_model", "visual.")):
        for i in range(LAYERS):
            a, b = "%s.encoder.layers.%d." % (ours, i), "%stransformer.resblocks.%d." % (theirs, i)
            for kind in ("weight", "bias"):
                out[b + "attn.in_proj_" + kind] = torch.cat(
                    [w[a + "self_attn.%s_proj.%s" % (p, kind)] for p in "qkv"])
                for x, y in (("self_attn.out_proj", "attn.out_proj"), ("mlp.fc1", "mlp.c_fc"), ("mlp.fc2", "mlp.c_proj"),
                             ("layer_norm1", "ln_1"), ("layer_norm2", "ln_2")):
                    out["%s%s.%s" % (b, y, kind)] = w["%s%s.%s" % (a, x, kind)]
    for x, y in (("text_model.embeddings.token_embedding.weight", "token_embedding.weight"),
                 ("text_model.embeddings.position_embedding.weight", "positional_embedding"),
                 ("text_model.final_layer_norm.weight", "ln_final.weight"),
                 ("text_model.final_layer_norm.bias", "ln_final.bias"),
                 ("vision_model.embeddings.class_embedding", "visual.class_embedding"),
                 ("vision_model.embeddings.patch_embedding.weight", "visual.conv1.weight"),
                 ("vision_model.embeddings.position_embedding.weight", "visual.positional_embedding"),
                 ("vision_model.pre_layrnorm.weight", "visual.ln_pre.weight"),
                 ("vision_model.pre_layrnorm.bias", "visual.ln_pre.bias"),
                 ("vision_model.post_layernorm.weight", "visual.ln_post.weight"),
                 ("vision_model.post_layernorm.bias", "visual.ln_post.bias")):
        out[y] = w[x]
    out["text_projection"] = w["text_projection.weight"].t().contiguous()
    out["visual.proj"] = w["visual_projection.weight"].t().contiguous()
    return out


# ---- the networks --------------------------------------------------------------------------------------------------------------

ACTS = {"gelu": F.gelu, "quick_gelu": lambda x: x * torch.sigmoid(1.702 * x)}


def norm(w, name, x):
    return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-5)


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def tower(w, prefix, x, heads, act, mask):
    n, tokens, c = x.shape

    def split(y):
        return y.reshape(n, tokens, heads, c // heads).transpose(1, 2)
    for i in range(LAYERS):
        p = "%s.encoder.layers.%d." % (prefix, i)
        h = norm(w, p + "layer_norm1", x)
        q, k, v = (split(linear(w, p + "self_attn.%s_proj" % s, h)) for s in "qkv")
        scores = q @ k.transpose(2, 3) * (c // heads) ** -0.5 + mask
        h = (scores.softmax(-1) @ v).transpose(1, 2).reshape(n, tokens, c)
        x = x + linear(w, p + "self_attn.out_proj", h)
        x = x + linear(w, p + "mlp.fc2", ACTS[act](linear(w, p + "mlp.fc1", norm(w, p + "layer_norm2", x))))
    return x


def text_features(w, ids, heads, act):
    x = w["text_model.embeddings.token_embedding.weight"][ids] + w["text_model.embeddings.position_embedding.weight"]
    mask = torch.full((CONTEXT, CONTEXT), float("-inf"), dtype=x.dtype).triu(1)
    x = norm(w, "text_model.final_layer_norm", tower(w, "text_model", x, heads, act, mask))
    return linear(w, "text_projection", x[torch.arange(len(ids)), ids.argmax(1)])


def image_features(w, pixels, heads, act):
    x = F.conv2d(pixels, w["vision_model.embeddings.patch_embedding.weight"], stride=PATCH)
    x = x.flatten(2).transpose(1, 2)
    first = w["vision_model.embeddings.class_embedding"].expand(len(x), 1, -1)
    x = torch.cat([first, x], 1) + w["vision_model.embeddings.position_embedding.weight"]
    x = tower(w, "vision_model", norm(w, "vision_model.pre_layrnorm", x), heads, act, 0.0)
    return linear(w, "visual_projection", norm(w, "vision_model.post_layernorm", x[:, 0]))


# ---- pictures ------------------------------------------------------------------------------------------------------------------

def picture(w, h, k):
    """The integer pictures of tests/checkmetrics.c, with noise of k levels."""
    y, x, c = np.mgrid[0:h, 0:w, 0:3].astype(np.uint64)
    plain = (2 * x + 3 * y + 50 * c + 64 * (((x >> 3) + (y >> 3)) & 1)) & 255
    u = ((x * 73856093) ^ (y * 19349663) ^ (c * 83492791)) & 0xffffffff
    u = (u * 1664525 + 1013904223) & 0xffffffff
    return np.clip(plain.astype(int) + (u >> 24).astype(int) % k - k // 2, 0, 255).astype(np.uint8)


def resized(a, size):
    return np.asarray(Image.fromarray(a).resize(size, Image.BICUBIC))


def prepared(a, mean, std):
    h, w = a.shape[:2]
    size = (IMAGE, int(IMAGE * h / w)) if w <= h else (int(IMAGE * w / h), IMAGE)
    b = resized(a, size)
    top, left = (b.shape[0] - IMAGE) // 2, (b.shape[1] - IMAGE) // 2
    b = b[top:top + IMAGE, left:left + IMAGE].astype(np.float64) / 255
    return torch.from_numpy((b - mean) / std).permute(2, 0, 1)


PICTURES = [(50, 37, 31), (24, 70, 121), (32, 32, 31)]
RESIZES = [(50, 37, 43, 32), (20, 70, 32, 112), (64, 64, 32, 32), (301, 200, 48, 32), (9, 9, 32, 32), (33, 41, 1, 7)]


def main():
    weights = random_weights()
    folder = os.path.join(HERE, "tiny")
    os.makedirs(folder, exist_ok=True)
    more = {"logit_scale": f32(2.65625), "vision_model.embeddings.position_ids": ("I64", [1, 17], np.arange(17).tobytes())}
    write(folder + "/model.safetensors", {**{k: f16(v) for k, v in weights.items()}, **more})
    write(HERE + "/openai.safetensors", {k: bf16(v) for k, v in openai_names(weights).items()})
    configs = {
        "config.json": {
            "model_type": "clip", "projection_dim": PROJECTION,
            "text_config": dict(model_type="clip_text_model", hidden_size=TEXT_WIDTH, num_attention_heads=4, hidden_act="gelu",
                                num_hidden_layers=LAYERS, eos_token_id=2, max_position_embeddings=CONTEXT),
            "vision_config": dict(hidden_size=VISION_WIDTH, num_attention_heads=3, hidden_act="quick_gelu",
                                  num_hidden_layers=LAYERS, image_size=IMAGE, patch_size=PATCH)},
        "preprocessor_config.json": {
            "crop_size": {"height": IMAGE, "width": IMAGE}, "size": {"shortest_edge": IMAGE}, "resample": 3,
            "image_mean": MEAN, "image_std": STD, "do_resize": True}}
    for name, value in configs.items():
        with open(os.path.join(folder, name), "w") as f:
            json.dump(value, f, indent=1)
            f.write("\n")

    ids = torch.from_numpy(read(HERE + "/../models/tiny-sd2/golden_text.safetensors")["te1.input_ids"].astype(np.int64))
    w = {k: v.double() for k, v in weights.items()}
    out = {}
    pictures = [picture(*p) for p in PICTURES]
    for kind, mean, std, heads, acts in (("tiny", MEAN, STD, (4, 3), ("gelu", "quick_gelu")),
                                         ("openai", CLIP_MEAN, CLIP_STD, (1, 1), ("quick_gelu", "quick_gelu"))):
        pixels = torch.stack([prepared(a, mean, std) for a in pictures])
        text, image = text_features(w, ids, heads[0], acts[0]), image_features(w, pixels, heads[1], acts[1])
        scores = 100 * F.normalize(image, dim=1) @ F.normalize(text, dim=1).t()
        print(kind, scores)
        out.update({kind + ".pixels": f32(pixels.permute(0, 2, 3, 1)), kind + ".image_embeds": f32(image),
                    kind + ".text_embeds": f32(text), kind + ".cosines100": f32(scores)})
    for a, b, c, d in RESIZES:
        x = resized(picture(a, b, 31), (c, d)).tobytes()
        x += bytes(-len(x) % 4)
        out["resize.%d.%d.%d.%d" % (a, b, c, d)] = ("U8", [len(x)], x)
    write(HERE + "/golden.safetensors", out)


main()
