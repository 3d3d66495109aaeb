/* Scaled dot product attention as the operators of several domains share it, written out in core operators.
 *
 *     scores  {bsnh,bnth->bnst} · scale      b batch, n heads, s queries, t keys, h and d entries of a head
 *     softcap, + bias, select(visible, ·, lowest), softmax over t
 *     result  {bnst,bntd->bsnd}
 *
 * Heads keep a dimension of their own, so that one letter stands for them from the projection to the result. With
 * fewer heads of keys than of queries, n are those of the keys and r the queries of one: {bsnrh,bnth->bnrst}; nothing
 * is repeated in memory.
 *
 * What is not visible gets the lowest finite number, not -inf: a row without anything visible stays finite. */
#ifndef AP_FRONTEND_ATTENTION_H
#define AP_FRONTEND_ATTENTION_H

#include "frontend/legalise.h"

typedef struct ap_attention {
    /* Queries [b,s,n,h], or [b,n,s,h] with heads_first; the result has their order. */
    ap_value q;
    bool heads_first;
    /* Keys [b,t,n,h] and values [b,t,n,d]; with kv_heads_first [b,n,t,h] and [b,n,t,d]. */
    ap_value k, v;
    bool kv_heads_first;
    ap_value bias; /* added to the scores, or AP_NONE; broadcasts to [b,n,s,t] like all that follow */
    ap_value visible[3];
    int nvisible;
    bool rows_may_be_empty; /* a row without anything visible gives zeros; otherwise there is none */
    double scale, softcap;  /* softcap 0: none */
    ap_dtype softmax_type;  /* AP_DTYPE_NONE: that of q, or f32 for half precision */
    /* Also wanted; in [b,n,s,t] and the type of q. */
    int inner;          /* AP_ATTENTION_SCORES ..., or -1 */
    ap_value out_inner; /* result */
} ap_attention;

enum { AP_ATTENTION_SCORES, AP_ATTENTION_CAPPED, AP_ATTENTION_MASKED, AP_ATTENTION_SOFTMAX };

void ap_attention_init(ap_attention *a);
ap_value ap_emit_attention(ap_legal *l, ap_attention *a);

/* [b,s,n·h] -> [b,s,n,h]; refuses what does not divide. */
ap_value ap_emit_heads(ap_legal *l, ap_value x, int64_t heads, const char *what);
/* [b,s,n,h] -> [b,s,n·h] */
ap_value ap_emit_join_heads(ap_legal *l, ap_value x);
/* [b,s,n,h] <-> [b,n,s,h] */
ap_value ap_emit_swap_heads(ap_legal *l, ap_value x);
/* [rows,columns]: column <= row + past */
ap_value ap_emit_causal(ap_legal *l, int64_t rows, int64_t columns, int64_t past);
void ap_attention_hide(ap_attention *a, ap_value visible);

/* Turns pairs of the first `width` entries of the last dimension: halves, or neighbours when interleaved. cos and sin
 * broadcast to x with width/2 entries there. */
ap_value ap_emit_rotation(ap_legal *l, ap_value x, ap_value cosine, ap_value sine, int64_t width, bool interleaved);

#endif
