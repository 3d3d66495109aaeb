/* SPDX-License-Identifier: MIT
 *
 * Ranks that are no processors: what a device of another kind does in its own way, as one table. The runtime keeps the
 * order of things (open, load, run, close; lists; failures) and asks the table where a stage has one. runtime/cuda/ is
 * the one that there is.
 *
 * Ranks of one target exchange, and send to each other, by means of their own; those that meet agree when the program
 * is opened on where (meeting places: bytes that one of them makes and all of them get). Everything else goes through
 * the communicator, which moves memory of the host: channels between a target and processors have slots there
 * (aprt_slot), filled from the device before they are sent and copied to it when they have been received. */
#ifndef APRT_TARGET_H
#define APRT_TARGET_H

#include "comm.h"

/* The functions with a device are called by its thread. A status other than APRT_OK or APRT_ABANDONED goes with a text
 * in aprt_device_why(d). What they start is in order of the calls; `end` waits, `upload` may return when src is free.
 */
struct aprt_target {
    uint32_t abi; /* APRT_ABI */
    const char *name;
    /* Arena, parameters, scratch, workspace, copies of inputs and outputs; host and host_from of slots. `close` also
     * after `open` has failed. */
    int (*open)(aprt_device *d);
    void (*close)(aprt_device *d);
    int (*upload)(aprt_device *d, void *dst, const void *src, int64_t bytes);
    /* Bytes of all meeting places of the program; those that ranks first_rank ... of this process make, the others
     * zero; a device connects to all of its own. */
    size_t (*meeting_bytes)(const aprt_layout *layout);
    int (*meeting_make)(const aprt_layout *layout, int32_t first_rank, int32_t nranks, char *bytes, aprt_failure *why);
    int (*connect)(aprt_device *d, const char *bytes);
    /* A run: inputs of the program come to the device, what the rank writes of its outputs goes back. The tables are as
     * the stage's function sees them, one pointer per port of the program. */
    int (*begin)(aprt_device *d, const void *const *inputs, const void *const **out_inputs, void *const **out_outputs);
    int (*end)(aprt_device *d, void *const *outputs);
    int (*run)(aprt_device *d); /* the stage's function for microbatch d->mb */
    int (*exchange)(aprt_device *d, const aprt_exchange *x, const void *src, void *dst);
    int (*recv)(aprt_device *d, uint32_t channel, int64_t mb);
    int (*claim)(aprt_device *d, uint32_t channel, int64_t mb);
    int (*free)(aprt_device *d, uint32_t channel, int64_t mb);
    int (*send)(aprt_device *d, uint32_t channel, int64_t mb);
};

#endif
