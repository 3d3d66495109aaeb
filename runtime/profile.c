/* SPDX-License-Identifier: MIT
 *
 * Time per instruction of rank 0: at the start of each instruction the time since the last mark goes to the one before.
 * What passes before the first instruction of a run belongs to nobody. */
#include "internal.h"

#include <stdlib.h>
#include <time.h>

struct aprt_profile {
    double last;
    uint32_t at;  /* instruction that runs since then */
    bool running; /* false before the first mark of a run */
};

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int aprt_profile_enable(aprt_instance *in)
{
    if (!in->usable || in->seconds)
        return in->usable ? APRT_OK : APRT_ERR_USAGE;
    in->seconds = calloc(in->program->ninstrs + 1u, sizeof *in->seconds);
    aprt_profile *p = calloc(1, sizeof *p);
    if (!in->seconds || !p) {
        free(p);
        return aprt_fail(&in->why, APRT_ERR_ENV, "out of memory");
    }
    in->worker[0].device.profile = p;
    return APRT_OK;
}

const double *aprt_profile_seconds(const aprt_instance *in)
{
    return in->worker && in->worker[0].device.profile ? in->seconds : NULL;
}

void aprt_profile_mark(aprt_device *d)
{
    aprt_profile *p = d->profile;
    double t = now();
    if (p->running)
        d->instance->seconds[p->at] += t - p->last;
    p->last = t;
    p->at = d->at;
    p->running = d->at < d->instance->program->ninstrs;
}
