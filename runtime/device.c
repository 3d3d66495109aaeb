/* SPDX-License-Identifier: MIT
 *
 * What programs call while they run: the steps of an instruction list, exchanges, and failures, which say where. */
#include "instance.h"
#include "target.h"

#include <stdarg.h>
#include <stdio.h>

/* ---- failures ---- */

aprt_failure *aprt_device_why(aprt_device *d)
{
    return &aprt_worker_of(d)->why;
}

/* rank 3, stage 1 ("late"), microbatch 2, instruction 7 (gather), node "emb" (Gather) */
void aprt_device_where(const aprt_device *d, char *out, size_t size)
{
    const aprt_program *p = d->instance->program;
    size_t n = (size_t)snprintf(out, size, "rank %d", d->rank);
    if (p->nstages > 1 && n < size)
        n += (size_t)snprintf(out + n, size - n, ", stage %d (\"%.60s\")", (int)(d->stage - p->stage), d->stage->name);
    if (p->microbatches > 1 && n < size)
        n += (size_t)snprintf(out + n, size - n, ", microbatch %lld", (long long)d->mb);
    if (d->at >= d->stage->ninstrs || n >= size)
        return;
    const aprt_instr *i = &d->stage->instr[d->at];
    snprintf(out + n, size - n, ", instruction %u (%s), node \"%s\"%s%s%s", d->at, i->what, i->node, *i->op ? " (" : "",
             i->op, *i->op ? ")" : "");
}

int aprt_device_fail(aprt_device *d, int status, const char *fmt, ...)
{
    char where[400];
    aprt_failure *why = aprt_device_why(d);
    va_list args;
    aprt_device_where(d, where, sizeof where);
    size_t n = (size_t)snprintf(why->text, sizeof why->text, "%s: ", where);
    if (n < sizeof why->text) {
        va_start(args, fmt);
        vsnprintf(why->text + n, sizeof why->text - n, fmt, args);
        va_end(args);
    }
    return status;
}

int aprt_fail_index(aprt_device *d)
{
    return aprt_device_fail(d, APRT_ERR_DATA, "index %lld is outside [%lld, %lld)", (long long)d->bad.index,
                            (long long)d->bad.first, (long long)d->bad.limit);
}

int aprt_fail_call(aprt_device *d, int status, const char *text)
{
    return aprt_device_fail(d, status, "%s", text);
}

/* ---- exchanges and lists ---- */

int aprt_exchange_run(aprt_device *d, const aprt_exchange *x, const void *src, void *dst)
{
    aprt_comm *c = d->instance->comm;
    return d->stage->target ? d->stage->target->exchange(d, x, src, dst) : c->ops->exchange(c, d, x, src, dst);
}

typedef int step_of_comm(aprt_comm *c, aprt_device *d, uint32_t channel, int64_t mb);
typedef int step_of_target(aprt_device *d, uint32_t channel, int64_t mb);

/* A step on a channel: in no instruction. */
static int step(aprt_device *d, uint32_t channel, int64_t mb, step_of_comm *by_comm, step_of_target *by_target)
{
    d->mb = mb;
    d->at = d->stage->ninstrs;
    return by_target ? by_target(d, channel, mb) : by_comm(d->instance->comm, d, channel, mb);
}

/* Timed when there is a trace. */
static int timed_step(aprt_device *d, aprt_list_step kind, uint32_t channel, int64_t mb, step_of_comm *by_comm,
                      step_of_target *by_target)
{
    double from = d->profile ? aprt_profile_now() : 0;
    int status = step(d, channel, mb, by_comm, by_target);
    if (d->profile)
        aprt_profile_step(d, kind, channel, mb, from);
    return status;
}

int aprt_recv(aprt_device *d, uint32_t channel, int64_t mb)
{
    const aprt_target *t = d->stage->target;
    return timed_step(d, APRT_STEP_RECV, channel, mb, d->instance->comm->ops->recv, t ? t->recv : NULL);
}

int aprt_claim(aprt_device *d, uint32_t channel, int64_t mb)
{
    const aprt_target *t = d->stage->target;
    return timed_step(d, APRT_STEP_CLAIM, channel, mb, d->instance->comm->ops->claim, t ? t->claim : NULL);
}

int aprt_send(aprt_device *d, uint32_t channel, int64_t mb)
{
    const aprt_target *t = d->stage->target;
    return timed_step(d, APRT_STEP_SEND, channel, mb, d->instance->comm->ops->send, t ? t->send : NULL);
}

int aprt_free(aprt_device *d, uint32_t channel, int64_t mb)
{
    const aprt_target *t = d->stage->target;
    return step(d, channel, mb, d->instance->comm->ops->free, t ? t->free : NULL);
}

int aprt_stage_run(aprt_device *d, int64_t mb)
{
    const aprt_stage *s = d->stage;
    const aprt_instance *in = d->instance;
    aprt_worker *w = aprt_worker_of(d);
    for (uint32_t i = 0; i < s->ninputs; i++) {
        const aprt_channel *c = s->input[i] < 0 ? &in->program->channel[-1 - s->input[i]] : NULL;
        w->input[i] = c ? d->arena + c->dst_at + mb % c->dst_depth * c->dst_bytes : w->inputs[s->input[i]];
    }
    for (uint32_t i = 0; i < s->noutputs; i++) {
        const aprt_channel *c = s->output[i] < 0 ? &in->program->channel[-1 - s->output[i]] : NULL;
        w->output[i] = c ? d->arena + c->src_at + mb % c->src_depth * c->src_bytes : w->outputs[s->output[i]];
    }
    d->mb = mb;
    int status = s->target ? s->target->run(d) : s->run(d);
    if (d->profile && status == APRT_OK && !s->target) /* which keeps its own time */
        aprt_profile_pause(d);
    d->at = s->ninstrs;
    return status;
}
