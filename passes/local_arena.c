/* Arena offsets. A buffer lives from the first instruction that touches it to the last; buffers that live at the same
 * time must not overlap, unless one is computed over another (local_reuse.c). passes/pack finds where they lie. */
#include "passes/local.h"

#include "passes/pack/pack.h"

#define WORK 200000000 /* of the packer where first fit does not meet the bound: about a quarter of a second */

static void find_lifetimes(ap_low *low)
{
    for (uint32_t i = 0; i < low->p->instrs.len; i++) {
        const ap_instr *in = &low->p->instrs.at[i];
        for (uint32_t r = 0; r < in->nrefs; r++) {
            if (in->ref[r].space != AP_SPACE_ARENA)
                continue;
            ap_low_buffer *b = &low->buffers.at[in->ref[r].index];
            b->into = AP_NONE;
            if (b->first == AP_NONE)
                b->first = i;
            b->last = i;
        }
    }
}

static bool pack_buffers(ap_low *low, ap_packing *out)
{
    uint32_t total = low->buffers.len, n = 0;
    uint32_t *first = AP_NEW_ARRAY(low->scratch, uint32_t, total), *last = AP_NEW_ARRAY(low->scratch, uint32_t, total);
    uint32_t *buffer = AP_NEW_ARRAY(low->scratch, uint32_t, total);
    int64_t *size = AP_NEW_ARRAY(low->scratch, int64_t, total);
    for (uint32_t b = 0; b < total; b++) {
        const ap_low_buffer *lb = &low->buffers.at[b];
        if (lb->first == AP_NONE || lb->into != AP_NONE)
            continue;
        buffer[n] = b;
        first[n] = lb->first;
        last[n] = lb->last;
        size[n++] = lb->bytes;
    }
    const ap_pack_problem problem = {.n = n, .first = first, .last = last, .size = size, .align = AP_LOCAL_ALIGN};
    if (!ap_pack(low->scratch, &problem, &(ap_pack_options){.work = WORK}, out))
        return false;
    for (uint32_t i = 0; i < n; i++)
        low->buffers.at[buffer[i]].offset = out->offset[i];
    return true;
}

static void finish_refs(ap_low *low)
{
    for (uint32_t i = 0; i < low->p->instrs.len; i++) {
        ap_instr *in = &low->p->instrs.at[i];
        for (uint32_t r = 0; r < in->nrefs; r++) {
            if (in->ref[r].space != AP_SPACE_ARENA)
                continue;
            in->ref[r].byte_offset = low->buffers.at[ap_low_buffer_of(low, in->ref[r].index)].offset;
            in->ref[r].index = 0;
        }
    }
}

ap_status ap_low_assign_arena(ap_low *low)
{
    ap_packing packing;
    find_lifetimes(low);
    ap_low_reuse(low);
    if (!pack_buffers(low, &packing))
        return ap_fail(low->ctx, AP_ERR_NO_PLAN, 0, "the values of one device are larger than the address space");
    low->p->arena_bytes = packing.height;
    low->p->live_bytes = packing.bound;
    finish_refs(low);
    return AP_OK;
}
