"""nets - the three networks of Stable Diffusion 1, scaled down, and the TAESD-like tiny decoder.

The state_dict() of each class has the names that diffusers (AutoencoderKL, UNet2DConditionModel,
AutoencoderTiny) and transformers (CLIPTextModel) give their tensors, and the constructors take their
config.json as a dict: what is trained here is a Stable Diffusion folder, only smaller.
Shapes are written [n, c, h, w] for pictures and [n, tokens, width] for sequences.
SPDX-License-Identifier: MIT
"""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


def count_parameters(net):
    return sum(p.numel() for p in net.parameters())


def split_heads(x, n_heads):
    """[n, tokens, width] -> [n, heads, tokens, width / heads]"""
    n, tokens, width = x.shape
    return x.view(n, tokens, n_heads, width // n_heads).transpose(1, 2)


def join_heads(x):
    n, heads, tokens, width = x.shape
    return x.transpose(1, 2).reshape(n, tokens, heads * width)


def attend(q, k, v, mask=None):
    """softmax(q k^T / sqrt(d) + mask) v; torch 1.13 has no fused version."""
    scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
    if mask is not None:
        scores = scores + mask
    return scores.softmax(-1) @ v


# ---- text encoder: CLIPTextModel ------------------------------------------------------------------

class ClipAttention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.k_proj = nn.Linear(width, width)
        self.v_proj = nn.Linear(width, width)
        self.q_proj = nn.Linear(width, width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x, mask):
        q, k, v = (split_heads(p(x), self.heads) for p in (self.q_proj, self.k_proj, self.v_proj))
        return self.out_proj(join_heads(attend(q, k, v, mask)))


class ClipMLP(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x):
        x = self.fc1(x)
        return self.fc2(x * torch.sigmoid(1.702 * x))  # "quick_gelu"


class ClipLayer(nn.Module):
    def __init__(self, width, heads, inner):
        super().__init__()
        self.self_attn = ClipAttention(width, heads)
        self.layer_norm1 = nn.LayerNorm(width)
        self.mlp = ClipMLP(width, inner)
        self.layer_norm2 = nn.LayerNorm(width)

    def forward(self, x, mask):
        x = x + self.self_attn(self.layer_norm1(x), mask)
        return x + self.mlp(self.layer_norm2(x))


class CLIPTextModel(nn.Module):
    """ids [n, tokens] -> context [n, tokens, width]"""

    def __init__(self, config):
        super().__init__()
        self.config = dict(config)
        width = config["hidden_size"]
        m = self.text_model = nn.Module()
        m.embeddings = nn.Module()
        m.embeddings.token_embedding = nn.Embedding(config["vocab_size"], width)
        m.embeddings.position_embedding = nn.Embedding(config["max_position_embeddings"], width)
        m.encoder = nn.Module()
        m.encoder.layers = nn.ModuleList(
            ClipLayer(width, config["num_attention_heads"], config["intermediate_size"])
            for _ in range(config["num_hidden_layers"]))
        m.final_layer_norm = nn.LayerNorm(width)

    def forward(self, ids):
        m, tokens = self.text_model, ids.shape[1]
        x = m.embeddings.token_embedding(ids) + m.embeddings.position_embedding.weight[:tokens]
        causal = torch.full((tokens, tokens), float("-inf")).triu(1)
        for layer in m.encoder.layers:
            x = layer(x, causal)
        return m.final_layer_norm(x)


# ---- blocks shared by the U-Net and the VAE --------------------------------------------------------

class ResnetBlock2D(nn.Module):
    def __init__(self, c_in, c_out, time_width, groups, eps):
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, c_in, eps)
        self.conv1 = nn.Conv2d(c_in, c_out, 3, padding=1)
        if time_width:
            self.time_emb_proj = nn.Linear(time_width, c_out)
        self.norm2 = nn.GroupNorm(groups, c_out, eps)
        self.conv2 = nn.Conv2d(c_out, c_out, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(c_in, c_out, 1) if c_in != c_out else None

    def forward(self, x, time=None):
        h = self.conv1(F.silu(self.norm1(x)))
        if time is not None:
            h = h + self.time_emb_proj(time)[:, :, None, None]
        h = self.conv2(F.silu(self.norm2(h)))
        return h + (x if self.conv_shortcut is None else self.conv_shortcut(x))


class Downsample(nn.Module):
    def __init__(self, channels, of_vae):
        super().__init__()
        self.of_vae = of_vae
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=0 if of_vae else 1)

    def forward(self, x):
        return self.conv(F.pad(x, (0, 1, 0, 1)) if self.of_vae else x)  # the VAE pads right, bottom


class Upsample(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


# ---- U-Net: UNet2DConditionModel -------------------------------------------------------------------

class CrossAttention(nn.Module):
    def __init__(self, width, context_width, heads):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(width, width, bias=False)
        self.to_k = nn.Linear(context_width, width, bias=False)
        self.to_v = nn.Linear(context_width, width, bias=False)
        self.to_out = nn.ModuleList([nn.Linear(width, width)])

    def forward(self, x, context):
        q, k, v = (split_heads(t, self.heads)
                   for t in (self.to_q(x), self.to_k(context), self.to_v(context)))
        return self.to_out[0](join_heads(attend(q, k, v)))


class GEGLU(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.proj = nn.Linear(width, 2 * inner)

    def forward(self, x):
        value, gate = self.proj(x).chunk(2, -1)
        return value * F.gelu(gate)


class FeedForward(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.net = nn.ModuleList([GEGLU(width, 4 * width), nn.Identity(),
                                  nn.Linear(4 * width, width)])

    def forward(self, x):
        return self.net[2](self.net[0](x))


class TransformerBlock(nn.Module):
    def __init__(self, width, context_width, heads):
        super().__init__()
        self.norm1, self.attn1 = nn.LayerNorm(width), CrossAttention(width, width, heads)
        self.norm2, self.attn2 = nn.LayerNorm(width), CrossAttention(width, context_width, heads)
        self.norm3, self.ff = nn.LayerNorm(width), FeedForward(width)

    def forward(self, x, context):
        y = self.norm1(x)
        x = x + self.attn1(y, y)
        x = x + self.attn2(self.norm2(x), context)
        return x + self.ff(self.norm3(x))


class Transformer2D(nn.Module):
    def __init__(self, channels, context_width, heads, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, 1e-6)
        self.proj_in = nn.Conv2d(channels, channels, 1)
        self.transformer_blocks = nn.ModuleList([TransformerBlock(channels, context_width, heads)])
        self.proj_out = nn.Conv2d(channels, channels, 1)

    def forward(self, x, context):
        n, c, h, w = x.shape
        y = self.proj_in(self.norm(x)).permute(0, 2, 3, 1).reshape(n, h * w, c)
        for block in self.transformer_blocks:
            y = block(y, context)
        return x + self.proj_out(y.reshape(n, h, w, c).permute(0, 3, 1, 2))


class TimestepEmbedding(nn.Module):
    def __init__(self, c_in, width, condition=0):
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(c_in, width), nn.Linear(width, width)
        if condition:  # LCM's guidance embedding, diffusers' time_cond_proj_dim
            self.cond_proj = nn.Linear(condition, c_in, bias=False)

    def forward(self, x, condition=None):
        if condition is not None:
            x = x + self.cond_proj(condition)
        return self.linear_2(F.silu(self.linear_1(x)))


def sinusoids(t, width):
    """[n] -> [n, width], cosines first: flip_sin_to_cos = true, freq_shift = 0"""
    half = width // 2
    frequency = torch.exp(-math.log(10000.0) * torch.arange(half, dtype=torch.float32) / half)
    angle = t.float()[:, None] * frequency[None]
    return torch.cat([angle.cos(), angle.sin()], -1)


class UNetLevel(nn.Module):
    """One entry of down_blocks or up_blocks: resnets, perhaps attention, perhaps a resampler."""

    def __init__(self, widths_in, c_out, config, attention, down=False, up=False):
        super().__init__()
        groups = config["norm_num_groups"]
        time_width = 4 * config["block_out_channels"][0]
        self.resnets = nn.ModuleList(
            ResnetBlock2D(c_in, c_out, time_width, groups, 1e-5) for c_in in widths_in)
        self.attentions = nn.ModuleList(
            Transformer2D(c_out, config["cross_attention_dim"], config["attention_head_dim"], groups)
            for _ in widths_in) if attention else None
        self.downsamplers = nn.ModuleList([Downsample(c_out, False)]) if down else None
        self.upsamplers = nn.ModuleList([Upsample(c_out)]) if up else None

    def run(self, i, x, time, context):
        x = self.resnets[i](x, time)
        return x if self.attentions is None else self.attentions[i](x, context)


class UNet2DConditionModel(nn.Module):
    """noisy latent [n, 4, h, w], timestep [n], context [n, tokens, width] -> v [n, 4, h, w]

    attention_head_dim is the NUMBER of heads, as in Stable Diffusion 1."""

    def __init__(self, config):
        super().__init__()
        self.config = c = dict(config)
        widths, n = c["block_out_channels"], c["layers_per_block"]
        last = len(widths) - 1
        time_width = 4 * widths[0]
        self.conv_in = nn.Conv2d(c["in_channels"], widths[0], 3, padding=1)
        self.time_embedding = TimestepEmbedding(widths[0], time_width,
                                                c.get("time_cond_proj_dim") or 0)
        skips, self.down_blocks = [widths[0]], nn.ModuleList()
        for i, kind in enumerate(c["down_block_types"]):
            c_in = widths[max(i - 1, 0)]
            self.down_blocks.append(UNetLevel([c_in] + [widths[i]] * (n - 1), widths[i], c,
                                              kind.startswith("CrossAttn"), down=i < last))
            skips += [widths[i]] * (n + (i < last))
        self.mid_block = nn.Module()
        self.mid_block.attentions = nn.ModuleList([Transformer2D(
            widths[-1], c["cross_attention_dim"], c["attention_head_dim"], c["norm_num_groups"])])
        self.mid_block.resnets = nn.ModuleList(
            ResnetBlock2D(widths[-1], widths[-1], time_width, c["norm_num_groups"], 1e-5)
            for _ in range(2))
        self.up_blocks, c_in = nn.ModuleList(), widths[-1]
        for i, kind in enumerate(c["up_block_types"]):
            c_out, ins = widths[last - i], []
            for _ in range(n + 1):
                ins.append(c_in + skips.pop())
                c_in = c_out
            self.up_blocks.append(UNetLevel(ins, c_out, c, kind.startswith("CrossAttn"),
                                            up=i < last))
        self.conv_norm_out = nn.GroupNorm(c["norm_num_groups"], widths[0], 1e-5)
        self.conv_out = nn.Conv2d(widths[0], c["out_channels"], 3, padding=1)

    def forward(self, x, t, context, guidance=None):
        time = self.time_embedding(sinusoids(t, self.config["block_out_channels"][0]), guidance)
        time = F.silu(time)  # every resnet begins with this SiLU; once is enough
        x = self.conv_in(x)
        skips = [x]
        for level in self.down_blocks:
            for i in range(len(level.resnets)):
                x = level.run(i, x, time, context)
                skips.append(x)
            if level.downsamplers is not None:
                x = level.downsamplers[0](x)
                skips.append(x)
        mid = self.mid_block
        x = mid.resnets[1](mid.attentions[0](mid.resnets[0](x, time), context), time)
        for level in self.up_blocks:
            for i in range(len(level.resnets)):
                x = level.run(i, torch.cat([x, skips.pop()], 1), time, context)
            if level.upsamplers is not None:
                x = level.upsamplers[0](x)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


# ---- VAE: AutoencoderKL ----------------------------------------------------------------------------

class VaeAttention(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.group_norm = nn.GroupNorm(groups, channels, 1e-6)
        self.to_q = nn.Linear(channels, channels)
        self.to_k = nn.Linear(channels, channels)
        self.to_v = nn.Linear(channels, channels)
        self.to_out = nn.ModuleList([nn.Linear(channels, channels)])

    def forward(self, x):
        n, c, h, w = x.shape
        y = self.group_norm(x).reshape(n, c, h * w).transpose(1, 2)
        y = self.to_out[0](attend(self.to_q(y), self.to_k(y), self.to_v(y)))
        return x + y.transpose(1, 2).reshape(n, c, h, w)


class VaeMiddle(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.attentions = nn.ModuleList([VaeAttention(channels, groups)])
        self.resnets = nn.ModuleList(ResnetBlock2D(channels, channels, 0, groups, 1e-6)
                                     for _ in range(2))

    def forward(self, x):
        return self.resnets[1](self.attentions[0](self.resnets[0](x)))


class VaeLevel(nn.Module):
    def __init__(self, c_in, c_out, n, groups, down=False, up=False):
        super().__init__()
        self.resnets = nn.ModuleList(
            ResnetBlock2D(c_in if i == 0 else c_out, c_out, 0, groups, 1e-6) for i in range(n))
        self.downsamplers = nn.ModuleList([Downsample(c_out, True)]) if down else None
        self.upsamplers = nn.ModuleList([Upsample(c_out)]) if up else None

    def forward(self, x):
        for resnet in self.resnets:
            x = resnet(x)
        for resample in (self.downsamplers, self.upsamplers):
            if resample is not None:
                x = resample[0](x)
        return x


class VaeEncoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        widths, groups, last = c["block_out_channels"], c["norm_num_groups"], \
            len(c["block_out_channels"]) - 1
        self.conv_in = nn.Conv2d(c["in_channels"], widths[0], 3, padding=1)
        self.down_blocks = nn.ModuleList(
            VaeLevel(widths[max(i - 1, 0)], w, c["layers_per_block"], groups, down=i < last)
            for i, w in enumerate(widths))
        self.mid_block = VaeMiddle(widths[-1], groups)
        self.conv_norm_out = nn.GroupNorm(groups, widths[-1], 1e-6)
        self.conv_out = nn.Conv2d(widths[-1], 2 * c["latent_channels"], 3, padding=1)

    def forward(self, x):
        x = self.conv_in(x)
        for level in self.down_blocks:
            x = level(x)
        return self.conv_out(F.silu(self.conv_norm_out(self.mid_block(x))))


class VaeDecoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        widths, groups = c["block_out_channels"][::-1], c["norm_num_groups"]
        last = len(widths) - 1
        self.conv_in = nn.Conv2d(c["latent_channels"], widths[0], 3, padding=1)
        self.mid_block = VaeMiddle(widths[0], groups)
        self.up_blocks = nn.ModuleList(
            VaeLevel(widths[max(i - 1, 0)], w, c["layers_per_block"] + 1, groups, up=i < last)
            for i, w in enumerate(widths))
        self.conv_norm_out = nn.GroupNorm(groups, widths[-1], 1e-6)
        self.conv_out = nn.Conv2d(widths[-1], c["out_channels"], 3, padding=1)

    def forward(self, z):
        x = self.mid_block(self.conv_in(z))
        for level in self.up_blocks:
            x = level(x)
        return self.conv_out(F.silu(self.conv_norm_out(x)))


class AutoencoderKL(nn.Module):
    """picture in [-1, 1] [n, 3, h, w] <-> latent [n, 4, h / f, w / f], f = 2^(levels - 1)"""

    def __init__(self, config):
        super().__init__()
        self.config = dict(config)
        latent = config["latent_channels"]
        self.encoder, self.decoder = VaeEncoder(config), VaeDecoder(config)
        self.quant_conv = nn.Conv2d(2 * latent, 2 * latent, 1)
        self.post_quant_conv = nn.Conv2d(latent, latent, 1)

    def encode(self, x):
        """-> mean and log variance, each [n, 4, h / f, w / f]"""
        mean, log_variance = self.quant_conv(self.encoder(x)).chunk(2, 1)
        return mean, log_variance.clamp(-30, 20)

    def decode(self, z):
        return self.decoder(self.post_quant_conv(z))


# ---- tiny decoder: AutoencoderTiny, after TAESD -----------------------------------------------------

class TinyBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(channels, channels, 3, padding=1))

    def forward(self, x):
        return F.relu(self.conv(x) + x)


class TinyDecoder(nn.Module):
    """One width for all levels: diffusers gives its upsampling convolutions no other."""

    def __init__(self, config):
        super().__init__()
        width, blocks = config["decoder_block_out_channels"][0], config["num_decoder_blocks"]
        layers = [nn.Conv2d(config["latent_channels"], width, 3, padding=1), nn.ReLU()]
        for level, n in enumerate(blocks):
            layers += [TinyBlock(width) for _ in range(n)]
            last = level == len(blocks) - 1
            if not last:
                layers.append(nn.Upsample(scale_factor=2))
            layers.append(nn.Conv2d(width, config["out_channels"] if last else width, 3, padding=1,
                                    bias=last))
        self.layers = nn.Sequential(*layers)

    def forward(self, z):
        return self.layers(torch.tanh(z / 3) * 3) * 2 - 1


class AutoencoderTiny(nn.Module):
    """scaled latent [n, 4, h, w] -> picture in [-1, 1] [n, 3, f h, f w], f = 2^(levels - 1); no encoder"""

    def __init__(self, config):
        super().__init__()
        self.config = dict(config)
        self.decoder = TinyDecoder(config)

    def decode(self, z):
        return self.decoder(z)
