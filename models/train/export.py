"""export - checkpoints -> a folder in the diffusers layout, f16 safetensors.
usage: export.py OUT [--unet CHECKPOINT] [--vae CHECKPOINT] [--scheduler ddim|lcm] [--beside FOLDER]
SPDX-License-Identifier: MIT
"""
import argparse
import json
import os
import shutil
import struct

import numpy as np
import torch

from settings import (BETA_END, BETA_START, CONTEXT, GUIDANCE, SCALING_FACTOR, TOKENIZER_DIR, TRAIN_STEPS, VOCABULARY,
                      WORK_DIR)
from tokenizer import END, START

LIMIT_MB = 40


def save_safetensors(path, tensors):
    """f16, sorted by name, the header padded to 8 bytes"""
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name in sorted(tensors):
        blob = tensors[name].detach().to(torch.float16).contiguous().numpy().tobytes()
        header[name] = dict(dtype="F16", shape=list(tensors[name].shape),
                            data_offsets=[offset, offset + len(blob)])
        offset += len(blob)
        blobs.append(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.writelines(blobs)


def load_safetensors(path):
    """-> {name: f32 tensor}"""
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    out = {}
    for name, entry in header.items():
        begin, end = (8 + size + o for o in entry["data_offsets"])
        kind = {"F16": np.float16, "F32": np.float32}[entry["dtype"]]
        values = np.frombuffer(data[begin:end], kind).reshape(entry["shape"])
        out[name] = torch.from_numpy(values.astype(np.float32))
    return out


def write_json(path, value):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        json.dump(value, f, indent=2)
        f.write("\n")


SCHEDULERS = {
    "ddim": {"_class_name": "DDIMScheduler", "set_alpha_to_one": True, "steps_offset": 1},
    "lcm": {"_class_name": "LCMScheduler", "set_alpha_to_one": True, "steps_offset": 0,
            "original_inference_steps": 50, "timestep_scaling": 10.0},
}


PREFERENCES = {  # darkroom.json: what the program uses when nobody says otherwise
    "ddim": {"steps": 8, "guidance": GUIDANCE},
    "lcm": {"steps": 4, "guidance": 1.0},
}


def scheduler_config(kind):
    return {**SCHEDULERS[kind], "_diffusers_version": "0.22.0", "beta_start": BETA_START,
            "beta_end": BETA_END, "beta_schedule": "scaled_linear", "num_train_timesteps": TRAIN_STEPS,
            "prediction_type": "v_prediction", "clip_sample": False,
            "timestep_spacing": "trailing", "trained_betas": None}


def export_configs(out, unet, text, vae, scheduler):
    diffusers = {"_diffusers_version": "0.22.0"}
    write_json(out + "/model_index.json", {
        "_class_name": "StableDiffusionPipeline", **diffusers, "feature_extractor": [None, None],
        "requires_safety_checker": False, "safety_checker": [None, None],
        "scheduler": ["diffusers", SCHEDULERS[scheduler]["_class_name"]],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["diffusers", "UNet2DConditionModel"], "vae": ["diffusers", "AutoencoderKL"]})
    write_json(out + "/scheduler/scheduler_config.json", scheduler_config(scheduler))
    write_json(out + "/darkroom.json", PREFERENCES[scheduler])
    write_json(out + "/unet/config.json", {
        "_class_name": "UNet2DConditionModel", **diffusers, "act_fn": "silu",
        "center_input_sample": False, "downsample_padding": 1, "flip_sin_to_cos": True,
        "freq_shift": 0, "mid_block_scale_factor": 1, "norm_eps": 1e-05,
        "use_linear_projection": False, **unet})
    levels = len(vae["block_out_channels"])
    write_json(out + "/vae/config.json", {
        "_class_name": "AutoencoderKL", **diffusers, "act_fn": "silu",
        "sample_size": unet["sample_size"] * 2 ** (levels - 1), "scaling_factor": SCALING_FACTOR,
        "down_block_types": ["DownEncoderBlock2D"] * levels,
        "up_block_types": ["UpDecoderBlock2D"] * levels, **vae})
    write_json(out + "/text_encoder/config.json", {
        "architectures": ["CLIPTextModel"], "model_type": "clip_text_model",
        "hidden_act": "quick_gelu", "layer_norm_eps": 1e-05, "attention_dropout": 0.0,
        "dropout": 0.0, "bos_token_id": VOCABULARY - 2, "eos_token_id": VOCABULARY - 1,
        "pad_token_id": VOCABULARY - 1, "projection_dim": text["hidden_size"],
        "initializer_factor": 1.0, "initializer_range": 0.02, "torch_dtype": "float16", **text})


def export_tokenizer(out):
    os.makedirs(out + "/tokenizer", exist_ok=True)
    for name in ("vocab.json", "merges.txt"):
        shutil.copyfile(os.path.join(TOKENIZER_DIR, name), os.path.join(out, "tokenizer", name))
    special = {"bos_token": START, "eos_token": END, "pad_token": END, "unk_token": END}
    write_json(out + "/tokenizer/special_tokens_map.json", special)
    write_json(out + "/tokenizer/tokenizer_config.json", {
        "tokenizer_class": "CLIPTokenizer", "model_max_length": CONTEXT, "do_lower_case": True,
        **special, "add_prefix_space": False, "errors": "replace"})


def export_tiny(out, checkpoint):
    """OUT/vae_tiny: the decoder alone, as diffusers' AutoencoderTiny has it; scaled latents in, factor 1."""
    tiny = torch.load(checkpoint, map_location="cpu")
    config, folder = tiny["configs"]["tiny"], out + "/vae_tiny"
    widths = config["decoder_block_out_channels"]
    write_json(folder + "/config.json", {
        "_class_name": "AutoencoderTiny", "_diffusers_version": "0.22.0", "act_fn": "relu",
        "upsampling_scaling_factor": 2, "scaling_factor": 1.0, "force_upcast": False,
        "latent_magnitude": 3, "latent_shift": 0.5, "encoder_block_out_channels": widths,
        "num_encoder_blocks": [1] * len(widths), **config})
    save_safetensors(folder + "/diffusion_pytorch_model.safetensors", tiny["average"]["tiny"])
    print("%s: %d samples, %.2f MB" % (folder, tiny["samples"], folder_mb(folder)))


SHARED = ("text_encoder", "tokenizer", "vae", "vae_tiny", "references.png")  # by a student and its teacher


def remove_links(out):
    """What is written later must not go through the links of an earlier run into the folder beside."""
    for part in SHARED:
        if os.path.islink(os.path.join(out, part)):
            os.remove(os.path.join(out, part))


def link_parts(out, beside):
    """Replace the parts that the folder beside has too by links: only the U-Net differs."""
    for part in SHARED:
        path, target = os.path.join(out, part), os.path.join(beside, part)
        if os.path.exists(target):
            shutil.rmtree(path, ignore_errors=True)
            os.symlink(os.path.relpath(target, out), path)


def folder_mb(folder):
    return sum(os.path.getsize(os.path.join(d, f)) for d, _, files in os.walk(folder)
               for f in files) / 1e6


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument("out")
    p.add_argument("--unet", default=os.path.join(WORK_DIR, "unet/last.pt"))
    p.add_argument("--vae", default=os.path.join(WORK_DIR, "vae/last.pt"))
    p.add_argument("--vae-encoder", default=os.path.join(WORK_DIR, "vae-encoder/last.pt"),
                   help="take the encoder half from here if the file exists")
    p.add_argument("--tiny", default=os.path.join(WORK_DIR, "tiny/last.pt"),
                   help="export the tiny decoder too if the file exists")
    p.add_argument("--scheduler", default="ddim", choices=list(SCHEDULERS))
    p.add_argument("--beside", help="link the parts this folder has, keep only the U-Net")
    args = p.parse_args()

    unet = torch.load(args.unet, map_location="cpu")
    vae = torch.load(args.vae, map_location="cpu")
    weights = vae["average"]["vae"]
    if os.path.exists(args.vae_encoder):
        encoder = torch.load(args.vae_encoder, map_location="cpu")["average"]["vae"]
        weights = {k: encoder[k] if k.startswith(("encoder.", "quant_conv.")) else v
                   for k, v in weights.items()}
    remove_links(args.out)
    export_configs(args.out, unet["configs"]["unet"], unet["configs"]["text"],
                   vae["configs"]["vae"], args.scheduler)
    export_tokenizer(args.out)
    weight_file = "/diffusion_pytorch_model.safetensors"
    save_safetensors(args.out + "/unet" + weight_file, unet["average"]["unet"])
    save_safetensors(args.out + "/vae" + weight_file, weights)
    save_safetensors(args.out + "/text_encoder/model.safetensors", unet["average"]["text"])
    if os.path.exists(args.tiny):
        export_tiny(args.out, args.tiny)
    if args.beside:
        link_parts(args.out, args.beside)
    size = folder_mb(args.out)
    print("%s: %d samples, %.1f MB" % (args.out, unet["samples"], size))
    if size > LIMIT_MB:
        raise SystemExit("%s: %.1f MB is more than %d MB; make the model smaller" % (
            args.out, size, LIMIT_MB))


if __name__ == "__main__":
    main()
