/* Sub-mesh shapes and logical views, as lists of numbers. */
#include "passes/stage/stages.h"

uint32_t ap_stages_shapes(int32_t hosts, int32_t devices, ap_stages_shape *out, uint32_t cap)
{
    uint32_t n = 0;
    for (int32_t m = 1; m <= devices; m++) {
        if (devices % m != 0)
            continue; /* of a power of two, these are the powers of two */
        if (n < cap)
            out[n] = (ap_stages_shape){1, m};
        n++;
    }
    for (int32_t h = 2; h <= hosts; h++, n++)
        if (n < cap)
            out[n] = (ap_stages_shape){h, devices};
    return n;
}

uint32_t ap_stages_views(ap_stages_shape s, bool inside, ap_stages_view *out, uint32_t cap)
{
    int32_t all = s.hosts * s.devices;
    uint32_t n = 0;
    for (int32_t rows = 1; rows <= all; rows++) {
        int32_t columns = all / rows;
        /* columns stay inside hosts when whole rows make up a host */
        if (all % rows != 0 || (inside && s.devices % columns != 0))
            continue;
        if (n < cap)
            out[n] = (ap_stages_view){rows, columns};
        n++;
    }
    return n;
}
