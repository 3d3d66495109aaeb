/* Where the sub-meshes of a plan lie: in pipeline order, or packed. */
#include "passes/stage/dp.h"

ap_near ap_stages_near(const ap_stages_problem *p, const ap_stages_pick *a, const ap_stages_pick *b)
{
    const ap_stages_choice *x = &p->choice[a->choice], *y = &p->choice[b->choice];
    if (x->group != y->group)
        return AP_NEAR_GROUPS;
    int32_t host = p->group[x->group].devices;
    bool one = x->hosts == 1 && y->hosts == 1 && a->device / host == b->device / host;
    return one ? AP_NEAR_HOST : AP_NEAR_HOSTS;
}

static bool is_part(const ap_stages_problem *p, uint32_t choice)
{
    const ap_stages_choice *c = &p->choice[choice];
    return c->hosts == 1 && c->devices < p->group[c->group].devices;
}

bool ap_stages_share_host(const ap_stages_problem *p, uint32_t a, uint32_t b)
{
    const ap_stages_choice *x = &p->choice[a], *y = &p->choice[b];
    return x->group == y->group && is_part(p, a) && is_part(p, b) &&
           x->devices + y->devices <= p->group[x->group].devices;
}

int64_t ap_stages_price(const ap_stages_problem *p, uint32_t boundary, uint32_t from, uint32_t out, uint32_t to,
                        uint32_t in, ap_near near)
{
    if (p->choice[from].group != p->choice[to].group)
        return p->transfer(p->user, boundary, from, out, to, in, AP_NEAR_GROUPS);
    bool share = ap_stages_share_host(p, from, to);
    if (near == AP_NEAR_HOST && !share)
        return AP_STAGES_NONE;
    int64_t inside = share ? p->transfer(p->user, boundary, from, out, to, in, AP_NEAR_HOST) : 0;
    if (near == AP_NEAR_HOST)
        return inside;
    return ap_max_i64(inside, p->transfer(p->user, boundary, from, out, to, in, AP_NEAR_HOSTS));
}

void ap_stages_hosts_clear(const ap_stages_problem *p, ap_stages_host *host)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        host[g] = (ap_stages_host){0};
}

static void set_rank(const ap_stages_problem *p, ap_stages_pick *s)
{
    s->rank = s->device;
    for (uint32_t g = 0; g < p->choice[s->choice].group; g++)
        s->rank += p->group[g].hosts * p->group[g].devices;
}

bool ap_stages_hosts_take(const ap_stages_problem *p, ap_stages_host *host, ap_stages_pick *s)
{
    const ap_stages_choice *c = &p->choice[s->choice];
    const ap_stages_group *g = &p->group[c->group];
    ap_stages_host *h = &host[c->group];
    if (!is_part(p, s->choice)) {
        s->device = h->next * g->devices;
        h->next += c->hosts;
    } else {
        if (h->fill > 0 && h->fill + c->devices > g->devices)
            return false;
        if (h->fill == 0)
            h->open = h->next++;
        s->device = h->open * g->devices + h->fill;
        h->fill = (h->fill + c->devices) % g->devices;
    }
    set_rank(p, s);
    return h->next <= g->hosts;
}

bool ap_stages_place_in_order(ap_arena *scratch, const ap_stages_problem *p, ap_stages_pick *stage, uint32_t n)
{
    ap_stages_host *host = AP_NEW_ARRAY(scratch, ap_stages_host, p->ngroups);
    for (uint32_t i = 0; i < n; i++)
        if (!ap_stages_hosts_take(p, host, &stage[i]))
            return false;
    return true;
}

/* Parts of hosts of one group, and how much of each host is free. */
typedef struct pack {
    uint32_t n, hosts;
    int32_t host;           /* devices of one */
    int32_t *size;          /* of the parts, in pipeline order */
    int32_t *free, *number; /* per host; number: which host of the group it is, -1 while empty */
    int32_t *left, *order;  /* of the parts to come: scratch */
    uint64_t steps;
} pack;

/* Do the sizes order[at..n), descending, fit into left? Fuller hosts are tried first; hosts with the same room are
 * one choice. Powers of two in hosts of a power of two fit without a step back (Alpa's theorem). */
static bool fit_rest(pack *k, uint32_t at, uint32_t n)
{
    if (at == n)
        return true;
    for (int32_t room = k->order[at]; room <= k->host && k->steps > 0; room++) {
        uint32_t h = 0;
        while (h < k->hosts && k->left[h] != room)
            h++;
        if (h == k->hosts)
            continue;
        k->steps--;
        k->left[h] -= k->order[at];
        if (fit_rest(k, at + 1, n))
            return true;
        k->left[h] += k->order[at];
    }
    return false;
}

/* Do the parts from `at` on fit into what is free? */
static bool can_pack(pack *k, uint32_t at)
{
    uint32_t n = 0;
    for (uint32_t i = at; i < k->n; i++) {
        uint32_t j = n++;
        for (; j > 0 && k->order[j - 1] < k->size[i]; j--)
            k->order[j] = k->order[j - 1];
        k->order[j] = k->size[i];
    }
    for (uint32_t h = 0; h < k->hosts; h++)
        k->left[h] = k->free[h];
    k->steps = 10000;
    return fit_rest(k, 0, n);
}

/* Part `at` goes to host h if the others still fit. */
static bool try_host(pack *k, uint32_t at, uint32_t h)
{
    if (h >= k->hosts || k->free[h] < k->size[at])
        return false;
    k->free[h] -= k->size[at];
    if (can_pack(k, at + 1))
        return true;
    k->free[h] += k->size[at];
    return false;
}

/* The host of the neighbour before, else the fullest. */
static uint32_t find_host(pack *k, uint32_t at, uint32_t near)
{
    if (try_host(k, at, near))
        return near;
    for (int32_t room = k->size[at]; room <= k->host; room++)
        for (uint32_t h = 0; h < k->hosts; h++)
            if (k->free[h] == room && try_host(k, at, h))
                return h;
    return AP_NONE;
}

static bool pack_start(ap_arena *scratch, const ap_stages_problem *p, uint32_t group, const ap_stages_pick *stage,
                       uint32_t n, pack *k)
{
    int32_t hosts = p->group[group].hosts;
    *k = (pack){.host = p->group[group].devices, .size = AP_NEW_ARRAY(scratch, int32_t, n)};
    for (uint32_t i = 0; i < n; i++) {
        const ap_stages_choice *c = &p->choice[stage[i].choice];
        if (c->group == group && is_part(p, stage[i].choice))
            k->size[k->n++] = c->devices;
        else if (c->group == group)
            hosts -= c->hosts;
    }
    if (hosts < 0)
        return false;
    k->hosts = (uint32_t)hosts;
    k->free = AP_NEW_ARRAY(scratch, int32_t, k->hosts);
    k->number = AP_NEW_ARRAY(scratch, int32_t, k->hosts);
    k->left = AP_NEW_ARRAY(scratch, int32_t, k->hosts);
    k->order = AP_NEW_ARRAY(scratch, int32_t, n);
    for (uint32_t h = 0; h < k->hosts; h++) {
        k->free[h] = k->host;
        k->number[h] = -1;
    }
    return can_pack(k, 0);
}

static bool pack_group(ap_arena *scratch, const ap_stages_problem *p, uint32_t group, ap_stages_pick *stage, uint32_t n)
{
    pack k;
    if (!pack_start(scratch, p, group, stage, n, &k))
        return false;
    int32_t next = 0;
    uint32_t at = 0, near = AP_NONE;
    for (uint32_t i = 0; i < n; i++) {
        const ap_stages_choice *c = &p->choice[stage[i].choice];
        bool mine = c->group == group, part = mine && is_part(p, stage[i].choice);
        if (!part) {
            stage[i].device = mine ? next * k.host : stage[i].device;
            next += mine ? c->hosts : 0;
            near = AP_NONE;
            continue;
        }
        near = find_host(&k, at, near);
        if (near == AP_NONE)
            return false; /* can_pack gave up */
        at++;
        if (k.number[near] < 0)
            k.number[near] = next++;
        stage[i].device = k.number[near] * k.host + k.host - k.free[near] - c->devices;
    }
    return true;
}

bool ap_stages_place_packed(ap_arena *scratch, const ap_stages_problem *p, ap_stages_pick *stage, uint32_t n)
{
    for (uint32_t g = 0; g < p->ngroups; g++)
        if (!pack_group(scratch, p, g, stage, n))
            return false;
    for (uint32_t i = 0; i < n; i++)
        set_rank(p, &stage[i]);
    return true;
}

bool ap_stages_place(ap_arena *scratch, const ap_stages_problem *p, ap_stages_pick *stage, uint32_t nstages,
                     bool *out_packed)
{
    *out_packed = !ap_stages_place_in_order(scratch, p, stage, nstages);
    return !*out_packed || ap_stages_place_packed(scratch, p, stage, nstages);
}
