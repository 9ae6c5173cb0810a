/* prediction.h - what a model's U-Net predicts, and who says so. */
/* SPDX-License-Identifier: MIT */
#ifndef PIPELINE_PREDICTION_H
#define PIPELINE_PREDICTION_H

#include "pipeline/model.h"

/*
 * The first of these that speaks decides:
 *
 *   the caller                 dk_model_options.prediction
 *   another U-Net's own file   given beside the model: its markers and metadata
 *   the scheduler's config     of the folder, beside the file, or kept in it by dk_convert
 *   markers                    tensors "v_pred" and "ztsnr" in the file (NoobAI and others)
 *   metadata                   modelspec.prediction_type, ss_v_parameterization
 *   a trial                    where the networks have the shape of SD 2, which exists as both
 *   nobody                     epsilon
 *
 * The trial (found by others on the released models; A1111's and stable-diffusion.cpp's rule) shows
 * the U-Net a flat latent x of 0.5, 8 x 8, at t = 999 with a flat context of 0.5 for two tokens.
 * At that timestep x is nearly all noise: eps is about x, while v is about -x0, and what comes out
 * lies more than 1 below x on average. It reads all weights of the U-Net, so it is put off until
 * somebody needs the answer.
 */

/*
 * Decides all but the trial. config_says: model->scheduler comes from a config; own: the file of a
 * U-Net given beside the model, or NULL.
 */
bool prediction_find(struct dk_model *model, const char *option, bool config_says,
                     const struct weights *own, struct dk_error *err);

/* Makes the trial if there is still one to make. */
bool prediction_settle(struct dk_model *model, struct dk_error *err);

/* "epsilon", "v_prediction" or "sample"; and by what it is known, for dk_model_info. */
const char *prediction_name(const struct dk_model *model);
const char *prediction_source_name(const struct dk_model *model);

#endif
