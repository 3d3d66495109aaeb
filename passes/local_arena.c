/* Arena offsets. A buffer lives from the first instruction that touches it to the last; buffers that live at the same
 * time must not overlap. First fit, in several orders; the one with the lowest peak is taken. */
#include "passes/local.h"

#include <stdlib.h>
#include <string.h>

typedef struct order_key {
    int64_t key; /* larger first */
    uint32_t buffer;
} order_key;

static void find_lifetimes(ap_low *low)
{
    for (uint32_t i = 0; i < low->p->instrs.len; i++) {
        const ap_instr *in = &low->p->instrs.at[i];
        for (uint32_t r = 0; r < in->nrefs; r++) {
            if (in->ref[r].space != AP_SPACE_ARENA)
                continue;
            ap_low_buffer *b = &low->buffers.at[in->ref[r].index];
            if (b->first == AP_NONE)
                b->first = i;
            b->last = i;
        }
    }
}

static int compare_keys(const void *pa, const void *pb)
{
    const order_key *a = pa, *b = pb;
    if (a->key != b->key)
        return a->key > b->key ? -1 : 1;
    return a->buffer < b->buffer ? -1 : a->buffer > b->buffer;
}

static int64_t round_up(int64_t bytes)
{
    return (bytes + AP_LOCAL_ALIGN - 1) / AP_LOCAL_ALIGN * AP_LOCAL_ALIGN;
}

/* Lowest offset at which buffer `id` meets none of the placed ones that live with it; these are kept sorted by offset
 * in `placed`. */
static int64_t first_fit(const ap_low *low, uint32_t id, const uint32_t *placed, uint32_t nplaced,
                         const int64_t *offset)
{
    const ap_low_buffer *b = &low->buffers.at[id];
    int64_t at = 0;
    for (uint32_t i = 0; i < nplaced; i++) {
        const ap_low_buffer *o = &low->buffers.at[placed[i]];
        if (o->last < b->first || b->last < o->first || offset[placed[i]] + round_up(o->bytes) <= at)
            continue;
        if (offset[placed[i]] >= ap_sat_add(at, round_up(b->bytes)))
            break;
        at = offset[placed[i]] + round_up(o->bytes);
    }
    return at;
}

/* Peak of placing the buffers in this order; offsets by buffer. */
static int64_t place_in_order(const ap_low *low, const order_key *order, uint32_t n, uint32_t *placed, int64_t *offset)
{
    int64_t peak = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = order[i].buffer, at = i;
        offset[id] = first_fit(low, id, placed, i, offset);
        while (at > 0 && offset[placed[at - 1]] > offset[id]) {
            placed[at] = placed[at - 1];
            at--;
        }
        placed[at] = id;
        peak = ap_max_i64(peak, ap_sat_add(offset[id], round_up(low->buffers.at[id].bytes)));
    }
    return peak;
}

static int64_t order_value(const ap_low_buffer *b, int which)
{
    switch (which) {
    case 0:
        return b->bytes;
    case 1:
        return -(int64_t)b->first;
    default:
        return ap_sat_mul(b->bytes, (int64_t)(b->last - b->first) + 1);
    }
}

static void finish_refs(ap_low *low)
{
    for (uint32_t i = 0; i < low->p->instrs.len; i++) {
        ap_instr *in = &low->p->instrs.at[i];
        for (uint32_t r = 0; r < in->nrefs; r++) {
            if (in->ref[r].space != AP_SPACE_ARENA)
                continue;
            in->ref[r].byte_offset = low->buffers.at[in->ref[r].index].offset;
            in->ref[r].index = 0;
        }
    }
}

ap_status ap_low_assign_arena(ap_low *low)
{
    uint32_t n = 0, total = low->buffers.len;
    order_key *order = AP_NEW_ARRAY(low->scratch, order_key, total);
    uint32_t *placed = AP_NEW_ARRAY(low->scratch, uint32_t, total);
    int64_t *offset = AP_NEW_ARRAY(low->scratch, int64_t, total);
    find_lifetimes(low);
    for (uint32_t b = 0; b < total; b++) {
        if (low->buffers.at[b].first != AP_NONE)
            order[n++].buffer = b;
    }
    int64_t best = INT64_MAX;
    for (int which = 0; which < 3; which++) {
        for (uint32_t i = 0; i < n; i++)
            order[i].key = order_value(&low->buffers.at[order[i].buffer], which);
        qsort(order, n, sizeof *order, compare_keys);
        int64_t peak = place_in_order(low, order, n, placed, offset);
        if (peak >= best)
            continue;
        best = peak;
        for (uint32_t i = 0; i < n; i++)
            low->buffers.at[order[i].buffer].offset = offset[order[i].buffer];
    }
    if (best > INT64_MAX / 2)
        return ap_fail(low->ctx, AP_ERR_NO_PLAN, 0, "the values of one device are larger than the address space");
    low->p->arena_bytes = best;
    finish_refs(low);
    return AP_OK;
}
