/* SPDX-License-Identifier: MIT
 *
 * How a convolution is done: what conv.c decides, and what conv_library.c makes of it for cuDNN. */
#ifndef APRT_CUDA_CONV_H
#define APRT_CUDA_CONV_H

#include "conv_kernel.h"
#include "cuda_device.h"

enum { TURNS_N, TURNS_G, TURNS_M, TURNS_C, CONV_DNN_SPATIAL = 3 };

/* By our own kernel; by cuDNN's forward function; by the one that goes from the gradients of results to those of
 * operands, which is what a convolution over an operand with holes is. */
typedef enum conv_way { CONV_OWN, CONV_FORWARD, CONV_BACKWARD } conv_way;

/* A spatial dimension as cuDNN gets it. `stride` is the holes' in CONV_BACKWARD. */
typedef struct conv_window {
    int64_t in, out, pad, stride;
} conv_window;

typedef struct conv_slot {
    const aprt_conv *c;
    int64_t turns[4];
    bool nothing; /* no results */
    conv_way way;
    /* as the library sees it */
    bool last;          /* channels are innermost */
    bool copied, apart; /* the operand is put into order first; sums go to the shared place first */
    conv_window window[CONV_DNN_SPATIAL];
    int64_t x[APRT_MAX_RANK]; /* strides of what it reads */
    conv_sums sums;           /* of what it writes */
    int64_t x_bytes, y_bytes; /* in the shared places */
    cudnnTensorDescriptor_t x_desc, y_desc, bias_desc;
    cudnnFilterDescriptor_t w_desc;
    cudnnConvolutionDescriptor_t op;
    cudnnActivationDescriptor_t relu;
    cudnnConvolutionFwdAlgo_t forward;
    cudnnConvolutionBwdDataAlgo_t backward;
    size_t workspace;
    int32_t fused;                 /* steps that cuDNN does: 0, or bias (may be zeros), whole value, relu */
    int32_t bias_step, whole_step; /* -1: none */
    char *w, *zeros;               /* on the device: weights in order, a bias of zeros */
} conv_slot;

/* Distance of the channels of all groups, which lie one behind the other. */
static inline int64_t conv_channel_stride(const conv_slot *s, const int64_t *stride, int64_t channels)
{
    return channels == 1 && s->turns[TURNS_G] > 1 ? stride[1] : stride[2];
}

/* ---- conv_library.c ---- */
int conv_library_open(aprt_device *d);
/* Descriptors and an algorithm; false if there is none that works in the workspace, gives the same bits each time and
 * computes as exactly as was asked. To be freed either way. */
bool conv_library_make(aprt_device *d, conv_slot *s);
void conv_library_free(conv_slot *s);
/* Enqueues. `z` and `bias` of fused steps; else NULL. */
int conv_library_run(aprt_device *d, const conv_slot *s, const void *x, void *y, const void *bias, const void *z);

#endif
