/* act.h - the element-wise functions of the networks. */
/* SPDX-License-Identifier: MIT */
#ifndef KERNELS_ACT_H
#define KERNELS_ACT_H

/* silu x / (1 + exp(-x)); gelu x (1 + erf(x / sqrt 2)) / 2; quick_gelu x / (1 + exp(-1.702 x));
 * relu max(x, 0). */
enum act { ACT_NONE, ACT_SILU, ACT_GELU, ACT_QUICK_GELU, ACT_RELU };

#endif
