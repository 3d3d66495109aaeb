/* Weights that only convolutions read are kept by those who prepare them, in the order that they want: the plain ones
 * are there while the program is opened and no longer (AP_STORE_PREPARED in ir/local.h). They lie behind all others in
 * the parameter space, so that what is kept is its beginning.
 *
 *     before   w0 | conv w1 | w2 | conv w3      after   w0 | w2 | conv w1 | conv w3 */
#include "passes/local.h"

#include <string.h>

static bool starts_at_zero(const ap_affine *a)
{
    static const ap_affine zero;
    return !memcmp(a, &zero, sizeof zero);
}

static void look_at(const ap_local *p, const ap_instr *in, bool *read, bool *refused)
{
    for (uint32_t i = 0; i < in->nrefs; i++) {
        if (in->ref[i].space != AP_SPACE_PARAM)
            continue;
        const ap_kernel *k = in->kind == AP_INSTR_CALL ? &p->kernels.at[in->kernel] : NULL;
        bool weights = k && k->kind == AP_KERNEL_CONV && k->conv.dtype == AP_F32 && i == 1;
        read[in->ref[i].index] = true;
        if (!weights || !starts_at_zero(&in->ref[i].offset))
            refused[in->ref[i].index] = true;
    }
}

void ap_low_prepared(ap_low *low)
{
    ap_local *p = low->p;
    bool *read = AP_NEW_ARRAY(low->scratch, bool, p->params.len);
    bool *refused = AP_NEW_ARRAY(low->scratch, bool, p->params.len), any = false;
    for (uint32_t i = 0; i < p->instrs.len; i++)
        look_at(p, &p->instrs.at[i], read, refused);
    for (uint32_t i = 0; i < p->params.len; i++) {
        if (read[i] && !refused[i])
            p->params.at[i].store.kind = AP_STORE_PREPARED;
        any = any || (read[i] && !refused[i]);
    }
    int64_t at = 0;
    for (int behind = 0; behind < 2 && any; behind++) {
        for (uint32_t i = 0; i < p->params.len; i++) {
            ap_local_param *w = &p->params.at[i];
            if ((w->store.kind == AP_STORE_PREPARED) != (behind == 1))
                continue;
            w->byte_offset = at;
            at += (w->bytes + AP_LOCAL_ALIGN - 1) / AP_LOCAL_ALIGN * AP_LOCAL_ALIGN;
        }
    }
}
