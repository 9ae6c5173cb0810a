/* metrics.h - how much two pictures differ, and how sharp one is. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_METRICS_H
#define PIPELINE_METRICS_H

/*
 * The public functions are dk_metrics_* in darkroom.h; these are the parts a test looks at.
 *
 * Luminance is Y = 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601), not rounded, from 0 to 255.
 *
 * SSIM (Wang, Bovik, Sheikh and Simoncelli 2004, doi:10.1109/TIP.2003.819861, equations 13 to 17):
 * windows of 11 x 11 that lie wholly within the picture, Gaussian weights of sigma 1.5 with sum 1,
 * K1 = 0.01, K2 = 0.03, L = 255. In pictures with a side below 11 the window is the largest odd
 * square that fits.
 *
 * MS-SSIM (Wang, Simoncelli and Bovik 2003, doi:10.1109/ACSSC.2003.1292216, equation 7): five
 * scales with the exponents 0.0448, 0.2856, 0.3001, 0.2363, 0.1333, halved by means of 2 x 2 pixels
 * (an odd last row or column is left out). A scale takes part only when its smaller side has the 11
 * pixels of a window; where fewer than five do (a side below 176), the exponents of those that do
 * are divided by their sum. A negative mean of contrast times structure is 0.
 */

#define METRICS_SCALES 5

/* How many scales MS-SSIM has for a picture of this size: 1 to METRICS_SCALES. */
int metrics_scales(int width_px, int height_px);

#endif
