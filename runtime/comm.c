/* SPDX-License-Identifier: MIT
 *
 * Which communicator a process has. */
#include "comm.h"

int32_t aprt_comm_launched(int32_t *rank)
{
    *rank = 0;
    return 0;
}

int aprt_comm_choose(const aprt_program *program, const aprt_comm_ops **out, aprt_failure *why)
{
    (void)program;
    (void)why;
    *out = &aprt_comm_local;
    return APRT_OK;
}
