/* cJSON's allocation hooks have no argument for a context, so that they need a variable of the thread: the one
 * mutable variable of the compiler. The libraries do not use it. */
#include "driver/json.h"

#include <cjson/cJSON.h>

#include <stdlib.h>

static _Thread_local ap_ctx *current;

static void *hook_malloc(size_t size)
{
    return current ? ap_arena_alloc(&current->arena, size) : malloc(size);
}

static void hook_free(void *p)
{
    if (!current)
        free(p);
}

void ap_json_use(ap_ctx *ctx)
{
    current = ctx;
    cJSON_InitHooks(ctx ? &(cJSON_Hooks){hook_malloc, hook_free} : NULL);
}
