/* dtype.c - element types of weights: names, sizes, and what their bytes mean. */
/* SPDX-License-Identifier: MIT */
#include "kernels/dtype.h"

#include <string.h>

static const struct dtype_info table[N_DTYPES] = {
    [DTYPE_F32] = {"f32", 1, 4},         [DTYPE_F16] = {"f16", 1, 2},
    [DTYPE_BF16] = {"bf16", 1, 2},       [DTYPE_F64] = {"f64", 1, 8},
    [DTYPE_F8_E4M3] = {"f8_e4m3", 1, 1}, [DTYPE_F8_E5M2] = {"f8_e5m2", 1, 1},
    [DTYPE_I64] = {"i64", 1, 8},         [DTYPE_I32] = {"i32", 1, 4},
    [DTYPE_U8] = {"u8", 1, 1},           [DTYPE_Q8_0] = {"q8_0", 32, 34},
    [DTYPE_Q4_0] = {"q4_0", 32, 18},     [DTYPE_Q4_1] = {"q4_1", 32, 20},
    [DTYPE_Q5_0] = {"q5_0", 32, 22},     [DTYPE_Q5_1] = {"q5_1", 32, 24},
    [DTYPE_Q2_K] = {"q2_k", 256, 84},    [DTYPE_Q3_K] = {"q3_k", 256, 110},
    [DTYPE_Q4_K] = {"q4_k", 256, 144},   [DTYPE_Q5_K] = {"q5_k", 256, 176},
    [DTYPE_Q6_K] = {"q6_k", 256, 210},
};

const struct dtype_info *dtype_info(enum dtype dtype)
{
    return (unsigned)dtype < N_DTYPES ? &table[dtype] : NULL;
}

size_t dtype_row_bytes(enum dtype dtype, size_t k)
{
    const struct dtype_info *info = dtype_info(dtype);
    if (!info || k % info->block_values != 0 ||
        k / info->block_values > SIZE_MAX / info->block_bytes)
        return 0;
    return k / info->block_values * info->block_bytes;
}

static float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t load16(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

/*
 * A small float's exponent and mantissa, moved to where f32 has them, read as the value times
 * 2^(bias - 127); one multiplication repairs that, for its denormals too.
 */
static float f16_value(uint32_t h)
{
    uint32_t sign = (h & 0x8000u) << 16, rest = (h & 0x7fffu) << 13;
    if ((h & 0x7c00u) == 0x7c00u) return float_of_bits(sign | 0x7f800000u | rest);
    float value = float_of_bits(rest) * 0x1p112f;
    return sign ? -value : value;
}

/* Four exponent bits (bias 7), three of mantissa, no infinity,
 * NaN is all ones (arXiv:2209.05433). */
static float f8_e4m3_value(uint32_t b)
{
    uint32_t rest = b & 0x7fu;
    float value = rest == 0x7fu ? float_of_bits(0x7fc00000u) : float_of_bits(rest << 20) * 0x1p120f;
    return b & 0x80u ? -value : value;
}

static void unpack_plain(enum dtype dtype, float *out, const uint8_t *p, size_t k)
{
    for (size_t i = 0; i < k; i++) {
        double d;
        int64_t i64;
        int32_t i32;
        switch (dtype) {
        case DTYPE_F32:
            memcpy(&out[i], p + 4 * i, 4);
            break;
        case DTYPE_F16:
            out[i] = f16_value(load16(p + 2 * i));
            break;
        case DTYPE_BF16:
            out[i] = float_of_bits(load16(p + 2 * i) << 16);
            break;
        case DTYPE_F64:
            memcpy(&d, p + 8 * i, 8);
            out[i] = (float)d;
            break;
        case DTYPE_F8_E4M3:
            out[i] = f8_e4m3_value(p[i]);
            break;
        case DTYPE_F8_E5M2:
            out[i] = f16_value((uint32_t)p[i] << 8);
            break;
        case DTYPE_I64:
            memcpy(&i64, p + 8 * i, 8);
            out[i] = (float)i64;
            break;
        case DTYPE_I32:
            memcpy(&i32, p + 4 * i, 4);
            out[i] = (float)i32;
            break;
        default:
            out[i] = (float)p[i];
            break;
        }
    }
}

/* 32 signed bytes times d. */
static void unpack_q8_0(float *out, const uint8_t *p)
{
    float d = f16_value(load16(p));
    for (int j = 0; j < 32; j++) out[j] = d * (float)(int8_t)p[2 + j];
}

/*
 * 32 values of 4 or 5 bits: byte j holds the low four bits of values j and j + 16; bit j of high is
 * the fifth bit of value j. value = d * (q - offset) + m.
 */
static void unpack_nibbles(float *out, const uint8_t *p, uint32_t high, float d, float m,
                           int offset)
{
    for (int j = 0; j < 16; j++) {
        int low = (int)(p[j] & 15u) | (int)(high >> j & 1u) << 4;
        int top = p[j] >> 4 | (int)(high >> (j + 16) & 1u) << 4;
        out[j] = d * (float)(low - offset) + m;
        out[j + 16] = d * (float)(top - offset) + m;
    }
}

/*
 * The K types hold 256 values. Where their quants are split, value i of the first or second half of
 * 128 (r = i % 128) has two bits in byte r % 32 of that half's 32, at bit r / 32 * 2.
 */
static int two_bits(const uint8_t *p, int i)
{
    return p[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
}

/*
 * 16 groups of 16: value = d * scale * q - dmin * min, q of 2 bits, scale and min the low and high
 * half of a byte.
 */
static void unpack_q2_k(float *out, const uint8_t *p)
{
    float d = f16_value(load16(p + 80)), dmin = f16_value(load16(p + 82));
    for (int i = 0; i < 256; i++) {
        int s = p[i / 16];
        out[i] = d * (float)(s & 15) * (float)two_bits(p + 16, i) - dmin * (float)(s >> 4);
    }
}

/*
 * 16 groups of 16: value = d * (scale - 32) * (q - 4), q of 3 bits: two as above, the third is bit
 * i / 32 of byte i % 32 of 32. Scales have 6 bits: of group g four in a half of byte g % 8, two in
 * byte 8 + g % 4 of their 12.
 */
static void unpack_q3_k(float *out, const uint8_t *p)
{
    float d = f16_value(load16(p + 108));
    const uint8_t *s = p + 96;
    for (int i = 0; i < 256; i++) {
        int g = i / 16, low = s[g % 8] >> (g / 8 * 4) & 15, top = s[8 + g % 4] >> (g / 4 * 2) & 3;
        int q = two_bits(p + 32, i) | (p[i % 32] >> (i / 32) & 1) << 2;
        out[i] = d * (float)((low | top << 4) - 32) * (float)(q - 4);
    }
}

/*
 * 8 groups of 32: value = d * scale * q - dmin * min, q of 4 bits in the low half of a byte for
 * even groups and in the high half for odd ones; with high (q5_k) bit g of byte j is the fifth of
 * value j of group g. Scale and min have 6 bits in 12 bytes s: the first four pairs lie in bytes
 * 0..3 and 4..7; of the others the low four bits are in bytes 8..11, the top two above the first
 * eight bytes' six.
 */
static void unpack_q45_k(float *out, const uint8_t *p, const uint8_t *high, const uint8_t *q)
{
    float d = f16_value(load16(p)), dmin = f16_value(load16(p + 2));
    const uint8_t *s = p + 4;
    for (int g = 0; g < 8; g++) {
        int scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
        int min = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4;
        for (int j = 0; j < 32; j++) {
            int byte = q[g / 2 * 32 + j], value = g % 2 ? byte >> 4 : byte & 15;
            if (high) value |= (high[j] >> g & 1) << 4;
            out[g * 32 + j] = d * (float)scale * (float)value - dmin * (float)min;
        }
    }
}

/*
 * 256 values in 16 groups of 16: value = d * scale * (q - 32), q of 6 bits. Each half of 128 values
 * has 64 bytes of low nibbles (values 0..63 in the low, 64..127 in the high ones) and 32 bytes with
 * the top two bits of four values.
 */
static void unpack_q6_k(float *out, const uint8_t *p)
{
    float d = f16_value(load16(p + 208));
    for (int i = 0; i < 256; i++) {
        int half = i / 128, r = i % 128;
        int low = p[half * 64 + r % 64] >> (r / 64 * 4) & 15;
        int top = p[128 + half * 32 + r % 32] >> (r / 32 * 2) & 3;
        out[i] = d * (float)(int8_t)p[192 + i / 16] * (float)((low | top << 4) - 32);
    }
}

static void unpack_block(enum dtype dtype, float *out, const uint8_t *p)
{
    switch (dtype) {
    case DTYPE_Q8_0:
        unpack_q8_0(out, p);
        break;
    case DTYPE_Q4_0:
        unpack_nibbles(out, p + 2, 0, f16_value(load16(p)), 0, 8);
        break;
    case DTYPE_Q4_1:
        unpack_nibbles(out, p + 4, 0, f16_value(load16(p)), f16_value(load16(p + 2)), 0);
        break;
    case DTYPE_Q5_0:
        unpack_nibbles(out, p + 6, load16(p + 2) | load16(p + 4) << 16, f16_value(load16(p)), 0,
                       16);
        break;
    case DTYPE_Q5_1:
        unpack_nibbles(out, p + 8, load16(p + 4) | load16(p + 6) << 16, f16_value(load16(p)),
                       f16_value(load16(p + 2)), 0);
        break;
    case DTYPE_Q2_K:
        unpack_q2_k(out, p);
        break;
    case DTYPE_Q3_K:
        unpack_q3_k(out, p);
        break;
    case DTYPE_Q4_K:
        unpack_q45_k(out, p, NULL, p + 16);
        break;
    case DTYPE_Q5_K:
        unpack_q45_k(out, p, p + 16, p + 48);
        break;
    default:
        unpack_q6_k(out, p);
        break;
    }
}

void dtype_unpack(enum dtype dtype, float *out, const void *row, size_t k)
{
    const struct dtype_info *info = &table[dtype];
    const uint8_t *p = row;
    if (info->block_values == 1) {
        unpack_plain(dtype, out, p, k);
        return;
    }
    for (size_t i = 0; i < k; i += info->block_values, p += info->block_bytes)
        unpack_block(dtype, out + i, p);
}
