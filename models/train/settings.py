"""settings - where the work goes, and the sizes all stages share.
SPDX-License-Identifier: MIT
"""
import os

HERE = os.path.dirname(os.path.abspath(__file__))
WORK_DIR = os.environ.get("DR_WORK") or os.path.join(HERE, "../../build/train")  # never committed
DATA_DIR = os.path.join(WORK_DIR, "data")
TOKENIZER_DIR = os.path.join(WORK_DIR, "tokenizer")

CONTEXT = 32           # tokens per caption, start and end included
VOCABULARY = 2048
SCALING_FACTOR = 0.18215
TRAIN_STEPS = 1000
GUIDANCE = 1.25  # as sharp as the VAE; more is sharper still, with more speckle
BETA_START, BETA_END = 0.00085, 0.025  # README, "noise schedule", says why not Stable Diffusion's 0.012

TEXT_CONFIG = dict(
    vocab_size=VOCABULARY, hidden_size=192, intermediate_size=768, num_hidden_layers=3,
    num_attention_heads=6, max_position_embeddings=CONTEXT)

UNET_CONFIG = dict(
    sample_size=16, in_channels=4, out_channels=4, block_out_channels=[64, 128, 192],
    layers_per_block=1, norm_num_groups=16, cross_attention_dim=192, attention_head_dim=8,
    down_block_types=["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
    up_block_types=["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"])

VAE64_CONFIG = dict(  # the first VAE: 64 x 64 pixels, a factor of 4; it defines the latent space
    block_out_channels=[16, 32, 64], layers_per_block=1, norm_num_groups=1,
    in_channels=3, out_channels=3, latent_channels=4)

VAE_CONFIG = dict(    # the shipped VAE: the same latents, 128 x 128 pixels, a factor of 8
    block_out_channels=[16, 32, 64, 128], layers_per_block=1, norm_num_groups=1,
    in_channels=3, out_channels=3, latent_channels=4)

TINY_CONFIG = dict(   # the small decoder: the same latents, scaled; half the width of TAESD and no block
    decoder_block_out_channels=[32, 32, 32, 32], num_decoder_blocks=[4, 3, 1, 0],  # where it is dear
    in_channels=3, out_channels=3, latent_channels=4)
