/* SPDX-License-Identifier: MIT
 *
 * A program that is open: its devices in this process, the threads that run them, the communicator between them. */
#ifndef APRT_INSTANCE_H
#define APRT_INSTANCE_H

#include "comm.h"

/* ---- profile.c ---- */
/* What a device does beside the instructions of its stage. */
typedef enum aprt_list_step { APRT_STEP_RECV, APRT_STEP_CLAIM, APRT_STEP_SEND } aprt_list_step;
void aprt_profile_free(aprt_profile *p);
/* A run begins, a run ends; where d->profile is there. */
void aprt_profile_begin(aprt_device *d);
void aprt_profile_end(aprt_device *d);
/* One microbatch of the stage is over. */
void aprt_profile_pause(aprt_device *d);
/* An instruction of a device that keeps its own time; seconds as of aprt_profile_now. `beside`: others may go on
 * meanwhile; among those that are beside, one is over before the next begins. */
void aprt_profile_instruction(aprt_device *d, uint32_t at, int64_t mb, bool beside, double from, double to);
void aprt_profile_step(aprt_device *d, aprt_list_step step, uint32_t channel, int64_t mb, double from);
double aprt_profile_now(void);
/* Writes the trace that AUTOPAR_TRACE asks for, if any, ahead of closing, which could not return what goes wrong. By
 * all processes. */
int aprt_trace_finish(aprt_instance *in, aprt_failure *why);
/* On rank 0: seconds of all stages, one behind the other (malloc); elsewhere NULL. By all processes. */
int aprt_profile_gather(aprt_instance *in, double **out, aprt_failure *why);

typedef struct aprt_worker {
    _Alignas(64) aprt_device device;
    const void **input; /* of the stage; what device.input points to */
    void **output;
    const void *const *inputs; /* of the program, in the memory of the device: of the run in progress */
    void *const *outputs;
    int status;
    aprt_failure why;
    pthread_t thread;
    bool started;
    /* while slots are prepared: where tensors are, and the one fetched last */
    struct aprt_weights *weights;
    char *fetched;
    double *seconds; /* profile, or NULL */
} aprt_worker;

struct aprt_instance {
    const aprt_program *program;
    pthread_mutex_t lock;
    aprt_failure why;
    bool usable;
    bool traced; /* what AUTOPAR_TRACE asks for has been tried since the last run */
    int spins;
    double watchdog; /* seconds */
    aprt_layout layout;
    aprt_comm *comm;
    int32_t first_rank, nworkers; /* ranks of this process */
    aprt_worker *worker;          /* [nworkers] */
    const void *const *inputs;    /* of the run in progress */
    void *const *outputs;
    aprt_weights *weights; /* during open */
    char *meeting;         /* where devices of targets meet, during open */
    int (*job)(aprt_worker *w);
    bool tracing;
    _Alignas(64) aprt_gate start; /* opened once per job */
    _Alignas(64) aprt_gate done;  /* opened by the last worker to finish */
    _Atomic uint32_t remaining, stop;
};

static inline aprt_worker *aprt_worker_of(const aprt_device *d)
{
    return &d->instance->worker[d->rank - d->instance->first_rank];
}

/* ---- load.c: what a device does when its instance is opened, and what it gives back ---- */
int aprt_load_weights(aprt_instance *in, const aprt_options *options);
int aprt_load_device(aprt_worker *w);
/* Puts rank and stage before a text that does not say them. */
void aprt_failure_at(const aprt_instance *in, int32_t rank, aprt_failure *why);
void aprt_unload_device(aprt_worker *w);

/* ---- device.c ---- */
int aprt_device_fail(aprt_device *d, int status, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
