/* What the two files of a convolution's lowering share: the trail from its result through the steps behind it. */
#ifndef AP_PASSES_LOCAL_CONV_H
#define AP_PASSES_LOCAL_CONV_H

#include "passes/local.h"

/* The value so far, and which of its factors those of the convolution's result are. */
typedef struct ap_conv_trail {
    ap_value root;
    int8_t map[AP_MAX_FACTORS];
} ap_conv_trail;

/* What a step's operand has for each element of the result. */
typedef enum ap_conv_reach {
    AP_CONV_REACH_NUMBER,
    AP_CONV_REACH_CHANNELS,
    AP_CONV_REACH_ALL,
    AP_CONV_REACH_OTHER
} ap_conv_reach;

void ap_conv_trail_start(ap_conv_trail *t, ap_value root);
/* Which operand of a step the value so far is, and the trail behind the step. */
uint32_t ap_conv_trail_operand(const ap_low *low, const ap_node_info *n, const ap_conv_trail *t);
void ap_conv_trail_follow(const ap_low *low, const ap_node_info *n, int nfactors, ap_conv_trail *t);
/* Per factor of operand k of a pointwise node: that of the result. */
void ap_conv_factors_in_result(const ap_low *low, const ap_node_info *n, uint32_t k, int8_t out[AP_MAX_FACTORS]);
/* Of operand k; `ys`: the convolution's result, `t`: the trail behind the step. */
ap_conv_reach ap_conv_reach_of(const ap_low *low, const ap_shape_info *ys, const ap_conv_trail *t,
                               const ap_node_info *n, uint32_t k);

#endif
