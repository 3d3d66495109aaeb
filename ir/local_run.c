/* Evaluating a local program: memory of the ranks, their parameters, and the caller's tensors. */
#include "ir/local_machine.h"

#include <string.h>

/* ---- machines ---- */

static int64_t box_count(const ap_local_param *param)
{
    int64_t n = 1;
    for (int f = 0; f < param->nfactors; f++)
        n = ap_sat_mul(n, param->extent[f]);
    return n;
}

/* The next element of the box, row-major. */
static void next_index(int64_t *index, const ap_local_param *param)
{
    for (int f = param->nfactors - 1; f >= 0; f--) {
        if (++index[f] < param->extent[f])
            return;
        index[f] = 0;
    }
}

static ap_status load_param(ap_machine *m, const ap_local_param *param, ap_machine_device *d)
{
    const ap_local *p = m->p;
    const void *bytes = param->data.bytes;
    int64_t size = ap_dtype_bytes(param->port.dtype), index[AP_MAX_FACTORS] = {0};
    if (param->data.dtype != param->port.dtype)
        return ap_fail(p->ctx, AP_ERR_BUG, param->loc, "data of another type than its parameter");
    if (param->data.kind == AP_DATA_NONE)
        return ap_fail(p->ctx, AP_ERR_ENV, param->loc, "no data for this parameter");
    if (p->m)
        AP_TRY(ap_data_bytes(p->m, &param->data, param->loc, &bytes));
    int64_t count = box_count(param), start = ap_affine_at(&param->offset, d->coords);
    int64_t here[AP_MAX_FACTORS];
    for (int f = 0; f < param->nfactors; f++)
        here[f] = ap_counts_at(param->ncounts, param->count, f, param->extent[f], d->coords, 0);
    if (param->byte_offset < 0 || ap_sat_mul(count, size) > param->bytes ||
        param->bytes > p->param_bytes - param->byte_offset)
        return ap_fail(p->ctx, AP_ERR_BUG, param->loc, "a parameter leaves its buffer");
    uint8_t *to = d->param + param->byte_offset;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = start;
        bool there = true;
        for (int f = 0; f < param->nfactors; f++) {
            at += index[f] * param->stride[f];
            there = there && index[f] < here[f];
        }
        next_index(index, param);
        if (!there)
            continue;
        bool splat = param->data.kind == AP_DATA_SPLAT;
        if (!splat && (at < 0 || (uint64_t)at >= param->data.size / (uint64_t)size))
            return ap_fail(p->ctx, AP_ERR_BUG, param->loc, "a parameter's part leaves its buffer");
        memcpy(to + i * size, (const uint8_t *)bytes + (splat ? 0 : at * size), (size_t)size);
    }
    return AP_OK;
}

ap_status ap_machine_open(ap_machine *m, const ap_local *p, ap_arena *tmp, int64_t arena_bytes)
{
    *m = (ap_machine){.p = p, .tmp = tmp, .arena_bytes = arena_bytes};
    m->device = AP_NEW_ARRAY(tmp, ap_machine_device, p->nranks);
    m->input_bytes = AP_NEW_ARRAY(tmp, int64_t, p->inputs.len);
    m->output_bytes = AP_NEW_ARRAY(tmp, int64_t, p->outputs.len);
    ap_machine_set_microbatch(m, 0);
    for (int32_t r = 0; r < p->nranks; r++) {
        ap_machine_device *d = &m->device[r];
        d->input = AP_NEW_ARRAY(tmp, uint8_t *, p->inputs.len);
        d->output = AP_NEW_ARRAY(tmp, uint8_t *, p->outputs.len);
        d->arena = AP_NEW_ARRAY(tmp, uint8_t, arena_bytes);
        d->param = AP_NEW_ARRAY(tmp, uint8_t, p->param_bytes);
        memset(d->arena, 0xff, (size_t)arena_bytes);
        memset(d->param, 0xff, (size_t)p->param_bytes);
        for (uint32_t i = 0; i < p->params.len; i++)
            AP_TRY(load_param(m, &p->params.at[i], d));
    }
    return AP_OK;
}

void ap_machine_set_microbatch(ap_machine *m, int32_t mb)
{
    for (int32_t r = 0; r < m->p->nranks; r++)
        for (int a = 0; a < m->p->naxes; a++)
            m->device[r].coords[a] = (mb * m->p->nranks + r) / m->p->axis_stride[a] % m->p->axis_size[a];
}

/* ---- the caller's tensors ---- */

ap_status ap_port_check(ap_ctx *ctx, const ap_port *port, const char *what, const ap_tensor *t)
{
    bool same = t->dtype == port->dtype && t->shape.rank == port->rank;
    for (int d = 0; d < port->rank && same; d++)
        same = ap_shape_dim(&t->shape, d) == port->dim[d];
    if (!same)
        return ap_error(ctx, 0, "%s \"%s\" has another type or shape than the program's", what,
                        ap_name_str(ctx, port->name));
    return AP_OK;
}

ap_status ap_port_tensor(ap_ctx *ctx, const ap_port *port, ap_arena *arena, ap_tensor *out)
{
    ap_shape shape = ap_shape_of_dims(ctx, port->rank, port->dim);
    if (!ap_tensor_make(arena, port->dtype, ap_shape_get(ctx, shape), out))
        return ap_error(ctx, 0, "output \"%s\" is too large to evaluate", ap_name_str(ctx, port->name));
    return AP_OK;
}

/* ---- one program by itself ---- */

/* What the caller gives for a port: a slot has one row for each point. */
static ap_port port_of_caller(const ap_local *p, const ap_port *port)
{
    ap_port r = *port;
    if (port->slot) {
        r.rank = 2;
        r.dim[0] = (int64_t)ap_local_microbatches(p) * p->nranks;
        r.dim[1] = port->dim[0];
    }
    return r;
}

/* Bytes of all inputs and outputs, as the caller has them; a slot's port is its first row. */
typedef struct tensors {
    uint8_t **input, **output;
} tensors;

static ap_status set_inputs(ap_machine *m, const ap_tensor *inputs, tensors *t)
{
    const ap_local *p = m->p;
    t->input = AP_NEW_ARRAY(m->tmp, uint8_t *, p->inputs.len);
    for (uint32_t i = 0; i < p->inputs.len; i++) {
        ap_port port = port_of_caller(p, &p->inputs.at[i]);
        AP_TRY(ap_port_check(p->ctx, &port, "input", &inputs[i]));
        int64_t bytes = inputs[i].count * ap_dtype_bytes(port.dtype);
        m->input_bytes[i] = port.slot ? bytes / port.dim[0] : bytes;
        t->input[i] = AP_NEW_ARRAY(m->tmp, uint8_t, bytes);
        ap_tensor_to_bytes(&inputs[i], t->input[i]);
    }
    return AP_OK;
}

static ap_status make_outputs(ap_machine *m, ap_arena *arena, ap_tensor *outputs, tensors *t)
{
    const ap_local *p = m->p;
    t->output = AP_NEW_ARRAY(m->tmp, uint8_t *, p->outputs.len);
    for (uint32_t i = 0; i < p->outputs.len; i++) {
        ap_port port = port_of_caller(p, &p->outputs.at[i]);
        AP_TRY(ap_port_tensor(p->ctx, &port, arena, &outputs[i]));
        int64_t bytes = outputs[i].count * ap_dtype_bytes(port.dtype);
        m->output_bytes[i] = port.slot ? bytes / port.dim[0] : bytes;
        t->output[i] = AP_NEW_ARRAY(m->tmp, uint8_t, bytes);
        memset(t->output[i], 0xff, (size_t)bytes);
    }
    return AP_OK;
}

static void set_ports(ap_machine *m, int32_t mb, const tensors *t)
{
    const ap_local *p = m->p;
    for (int32_t r = 0; r < p->nranks; r++) {
        int64_t point = (int64_t)mb * p->nranks + r;
        for (uint32_t i = 0; i < p->inputs.len; i++)
            m->device[r].input[i] = t->input[i] + (p->inputs.at[i].slot ? point * m->input_bytes[i] : 0);
        for (uint32_t i = 0; i < p->outputs.len; i++)
            m->device[r].output[i] = t->output[i] + (p->outputs.at[i].slot ? point * m->output_bytes[i] : 0);
    }
}

static ap_status run_program(const ap_local *p, ap_arena *tmp, ap_arena *arena, const ap_tensor *inputs,
                             ap_tensor *outputs)
{
    ap_machine m;
    tensors t;
    AP_TRY(ap_machine_open(&m, p, tmp, p->arena_bytes));
    AP_TRY(set_inputs(&m, inputs, &t));
    AP_TRY(make_outputs(&m, arena, outputs, &t));
    for (int32_t mb = 0; mb < ap_local_microbatches(p); mb++) {
        ap_machine_set_microbatch(&m, mb);
        set_ports(&m, mb, &t);
        AP_TRY(ap_machine_run(&m));
    }
    for (uint32_t i = 0; i < p->outputs.len; i++)
        ap_tensor_from_bytes(&outputs[i], t.output[i]);
    return AP_OK;
}

ap_status ap_local_eval(const ap_local *p, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs)
{
    ap_arena tmp;
    ap_arena_init(&tmp, p->ctx->scratch.out_of_memory, p->ctx->scratch.user);
    ap_status status = run_program(p, &tmp, arena, inputs, outputs);
    ap_arena_deinit(&tmp);
    return status;
}
