"""check_folder - is an exported folder complete, of the right shapes, finite and small enough?
usage: check_folder.py FOLDER
SPDX-License-Identifier: MIT
"""
import json
import os
import sys

import torch

from export import LIMIT_MB, folder_mb, load_safetensors
from nets import AutoencoderTiny
from sample import Model

FILES = ["model_index.json", "scheduler/scheduler_config.json", "tokenizer/vocab.json",
         "tokenizer/merges.txt", "unet/config.json", "vae/config.json", "text_encoder/config.json"]


def check_tiny(folder, vae_config):
    """The small decoder: as its config says, and for the latents and the size of the VAE."""
    with open(folder + "/config.json") as f:
        config = json.load(f)
    net = AutoencoderTiny(config)
    weights = load_safetensors(folder + "/diffusion_pytorch_model.safetensors")
    net.load_state_dict(weights)
    for name, value in weights.items():
        assert torch.isfinite(value).all(), "vae_tiny: " + name + " is not finite"
    assert config["latent_channels"] == vae_config["latent_channels"], "vae_tiny: other latents"
    assert len(config["num_decoder_blocks"]) == len(vae_config["block_out_channels"]), "vae_tiny: size"
    assert folder_mb(folder) < 1, "vae_tiny: more than 1 MB"


def main():
    folder = sys.argv[1]
    for name in FILES:
        assert os.path.exists(os.path.join(folder, name)), name + " is missing"
    model = Model(folder)  # strict: every tensor present, no others, shapes as the configs say
    for net in (model.unet, model.text, model.vae):
        for name, value in net.state_dict().items():
            assert torch.isfinite(value).all(), name + " is not finite"
    size = model.unet.config["sample_size"] * 2 ** (len(model.vae.config["block_out_channels"]) - 1)
    assert model.vae.config["sample_size"] == size, "the VAE's sample_size does not fit the U-Net's"
    pixels, _ = model.draw(["a red apple"], 1)
    assert pixels.shape == (1, size, size, 3), pixels.shape
    tiny = os.path.join(folder, "vae_tiny")
    if os.path.exists(tiny):
        check_tiny(tiny, model.vae.config)
    assert folder_mb(folder) <= LIMIT_MB, "more than %d MB" % LIMIT_MB
    print("%s: complete, %d pixels, %.1f MB" % (folder, size, folder_mb(folder)))


if __name__ == "__main__":
    main()
