/* SPDX-License-Identifier: MIT
 *
 * Which communicator a process has: `local`, or the plugin for MPI when it is one of several that mpirun or srun has
 * started. The runtime itself is linked with no MPI. */
#define _GNU_SOURCE /* dladdr */
#include "comm.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static const char plugin[] = "libautopar_rt_mpi.so";

static int32_t number_of(const char *variable, int32_t otherwise)
{
    const char *text = getenv(variable);
    char *end = NULL;
    long n = text && *text ? strtol(text, &end, 10) : otherwise;
    return end && *end ? otherwise : (int32_t)n;
}

int32_t aprt_comm_launched(int32_t *rank)
{
    static const char *const names[][2] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                           {"PMI_SIZE", "PMI_RANK"},
                                           {"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};
    const char *choice = getenv("AUTOPAR_COMM");
    *rank = 0;
    if (choice && strcmp(choice, "local") == 0)
        return 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t size = number_of(names[i][0], 0);
        if (size < 1)
            continue;
        *rank = number_of(names[i][1], 0);
        return size;
    }
    return 0;
}

typedef const aprt_comm_ops *aprt_comm_entry(void);

/* Beside the shared runtime, if that is what this is part of. */
static void *open_beside(void)
{
    Dl_info info;
    char path[4096];
    const char *slash = dladdr(&plugin, &info) && info.dli_fname ? strrchr(info.dli_fname, '/') : NULL;
    if (!slash || (size_t)(slash - info.dli_fname) + sizeof plugin + 1 > sizeof path)
        return NULL;
    snprintf(path, sizeof path, "%.*s/%s", (int)(slash - info.dli_fname), info.dli_fname, plugin);
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL);
}

/* Where the loader looks by itself (the folder that the program was linked with, LD_LIBRARY_PATH), beside the shared
 * runtime, where the runtime was to be installed. Open MPI's own parts need its symbols to be global. */
static void *open_plugin(aprt_failure *why)
{
    const char *given = getenv("AUTOPAR_RT_PLUGIN");
    const bool is_given = given && *given;
    void *handle = dlopen(is_given ? given : plugin, RTLD_NOW | RTLD_GLOBAL);
    if (!handle) {
        const char *error = dlerror(); /* lives until the next call */
        aprt_fail(
            why, APRT_ERR_ENV,
            "this process is one of an MPI job, and %s cannot be opened (%.200s); set AUTOPAR_RT_PLUGIN to its path, "
            "or AUTOPAR_COMM=local to run all devices in this process",
            plugin, error ? error : "?");
    }
    if (!handle && !is_given)
        handle = open_beside();
#ifdef APRT_LIBDIR
    if (!handle && !is_given)
        handle = dlopen(APRT_LIBDIR "/libautopar_rt_mpi.so", RTLD_NOW | RTLD_GLOBAL);
#endif
    return handle;
}

int aprt_comm_choose(const aprt_comm_ops **out, aprt_failure *why)
{
    int32_t rank;
    aprt_comm_entry *entry = NULL;
    const char *choice = getenv("AUTOPAR_COMM");
    *out = &aprt_comm_local;
    if (choice && *choice && strcmp(choice, "local") != 0)
        return aprt_fail(why, APRT_ERR_USAGE, "AUTOPAR_COMM is local or not set, not \"%.40s\"", choice);
    if (aprt_comm_launched(&rank) == 0)
        return APRT_OK;
    void *handle = open_plugin(why);
    if (!handle)
        return APRT_ERR_ENV;
    why->text[0] = 0;
    void *symbol = dlsym(handle, "aprt_comm_plugin");
    memcpy(&entry, &symbol, sizeof entry);
    *out = entry ? entry() : NULL;
    if (!*out || (*out)->abi != APRT_ABI)
        return aprt_fail(why, APRT_ERR_ENV, "%s is of another version of the runtime", plugin);
    return APRT_OK;
}
