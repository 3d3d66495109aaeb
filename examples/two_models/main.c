/* SPDX-License-Identifier: MIT
 *
 * What the first model finds in its input, the second one classifies. Each is a library made by `autopar compile`, with
 * functions under its own name; the first runs on two devices, which are threads of this process. */
#include "backbone.h"
#include "head.h"

#include <stdio.h>
#include <stdlib.h>

enum { ROWS = 4, INPUTS = 16, FEATURES = 32, CLASSES = 5 };

static int fail(const char *model, const char *why)
{
    fprintf(stderr, "two_models: %s: %s\n", model, why ? why : "out of memory");
    return EXIT_FAILURE;
}

static int run(backbone_instance *backbone, head_instance *head)
{
    float x[ROWS][INPUTS], found[ROWS][FEATURES], p[ROWS][CLASSES];
    for (int i = 0; i < ROWS * INPUTS; i++)
        x[i / INPUTS][i % INPUTS] = (float)(i * 37 % 101) / 50.0f - 1.0f;
    if (backbone_run(backbone, (const void *[]){x}, (void *[]){found}) != 0)
        return fail("backbone", backbone_error(backbone));
    if (head_run(head, (const void *[]){found}, (void *[]){p}) != 0)
        return fail("head", head_error(head));
    for (int r = 0; r < ROWS; r++) {
        int best = 0;
        for (int c = 1; c < CLASSES; c++)
            best = p[r][c] > p[r][best] ? c : best;
        printf("row %d: class %d, probability %.3f\n", r, best, (double)p[r][best]);
    }
    return EXIT_SUCCESS;
}

int main(void)
{
    backbone_instance *backbone;
    head_instance *head = NULL;
    int code;
    if (backbone_open(&(backbone_options){.weights = BACKBONE_WEIGHTS}, &backbone) != 0)
        code = fail("backbone", backbone_error(backbone));
    else if (head_open(&(head_options){.weights = HEAD_WEIGHTS}, &head) != 0)
        code = fail("head", head_error(head));
    else
        code = run(backbone, head);
    head_close(head);
    backbone_close(backbone);
    return code;
}
