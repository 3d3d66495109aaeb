/* Shares of ports. A port matters only if the wires that use it could ask for more than all of it together; what is
 * left falls apart into groups of wires, mostly tiny: neighbours in a pipeline share a host's network cards at most. */
#include "passes/pipe/simulate.h"

#define FULL (1 + 1e-9) /* as much of a port as wires may ask for together */

/* A port as its users see it: the part of its time that a wire at full speed takes. */
typedef struct user {
    uint32_t wire;
    double part;
} user;
typedef struct port {
    uint32_t nusers;
    user *user; /* wires ascending */
} port;

typedef struct group {
    uint32_t nwires, nports;
    uint32_t *wire;
    port *port;
} group;

struct ap_sim_ports {
    uint32_t ngroups;
    group *groups;
    uint32_t *of_wire;
    double *limit; /* scratch per port of the largest group */
    bool *frozen;  /* scratch per wire */
};

static double busiest(const ap_sim_wire *w)
{
    double most = 0;
    for (uint32_t i = 0; i < w->nloads; i++)
        most = w->load[i].ps > most ? w->load[i].ps : most;
    return most;
}

int64_t ap_sim_alone(const ap_sim_wire *w)
{
    double ps = busiest(w);
    return ps < 9e18 ? ap_sat_add(w->latency_ps, (int64_t)ps) : INT64_MAX;
}

static port *list_ports(ap_arena *arena, const ap_sim_wire *wire, uint32_t nwires, uint32_t nports)
{
    port *ports = AP_NEW_ARRAY(arena, port, nports);
    for (uint32_t w = 0; w < nwires; w++)
        for (uint32_t i = 0; i < wire[w].nloads; i++)
            ports[wire[w].load[i].port].nusers++;
    for (uint32_t p = 0; p < nports; p++) {
        ports[p].user = AP_NEW_ARRAY(arena, user, ports[p].nusers);
        ports[p].nusers = 0;
    }
    for (uint32_t w = 0; w < nwires; w++) {
        double all = busiest(&wire[w]);
        for (uint32_t i = 0; i < wire[w].nloads; i++) {
            port *p = &ports[wire[w].load[i].port];
            if (wire[w].load[i].ps > 0)
                p->user[p->nusers++] = (user){.wire = w, .part = wire[w].load[i].ps / all};
        }
    }
    return ports;
}

static bool is_crowded(const port *p)
{
    double asked = 0;
    for (uint32_t i = 0; i < p->nusers; i++)
        asked += p->user[i].part;
    return p->nusers > 1 && asked > FULL;
}

static bool is_equal(const port *a, const port *b)
{
    bool equal = a->nusers == b->nusers;
    for (uint32_t i = 0; i < a->nusers && equal; i++)
        equal = a->user[i].wire == b->user[i].wire && a->user[i].part == b->user[i].part;
    return equal;
}

static uint32_t root_of(uint32_t *parent, uint32_t w)
{
    while (parent[w] != w)
        w = parent[w] = parent[parent[w]];
    return w;
}

static void join_users(const port *ports, uint32_t nports, uint32_t *parent)
{
    for (uint32_t p = 0; p < nports; p++)
        for (uint32_t i = 1; is_crowded(&ports[p]) && i < ports[p].nusers; i++) {
            uint32_t a = root_of(parent, ports[p].user[0].wire), b = root_of(parent, ports[p].user[i].wire);
            parent[a > b ? a : b] = a > b ? b : a;
        }
}

/* Ranks of a stage that do the same have ports that look the same: one of them is enough. */
static void add_port(ap_sim_ports *s, const port *p)
{
    group *g = &s->groups[s->of_wire[p->user[0].wire]];
    for (uint32_t i = 0; i < g->nports; i++)
        if (is_equal(&g->port[i], p))
            return;
    g->port[g->nports++] = *p;
}

/* Memory of the groups, once it is known who is in which. */
static void open_groups(ap_sim_ports *s, ap_arena *arena, uint32_t nwires, const port *ports, uint32_t nports)
{
    uint32_t most = 0;
    for (uint32_t w = 0; w < nwires; w++)
        s->groups[s->of_wire[w]].nwires++;
    for (uint32_t p = 0; p < nports; p++)
        if (is_crowded(&ports[p]))
            s->groups[s->of_wire[ports[p].user[0].wire]].nports++;
    for (uint32_t i = 0; i < s->ngroups; i++) {
        group *g = &s->groups[i];
        most = g->nports > most ? g->nports : most;
        g->wire = AP_NEW_ARRAY(arena, uint32_t, g->nwires);
        g->port = AP_NEW_ARRAY(arena, port, g->nports);
        g->nwires = g->nports = 0;
    }
    s->limit = AP_NEW_ARRAY(arena, double, most);
}

ap_sim_ports *ap_sim_ports_create(ap_arena *arena, const ap_sim_wire *wire, uint32_t nwires, uint32_t nports)
{
    ap_sim_ports *s = AP_NEW(arena, ap_sim_ports);
    port *ports = list_ports(arena, wire, nwires, nports);
    uint32_t *parent = AP_NEW_ARRAY(arena, uint32_t, nwires);
    for (uint32_t w = 0; w < nwires; w++)
        parent[w] = w;
    join_users(ports, nports, parent);
    s->of_wire = AP_NEW_ARRAY(arena, uint32_t, nwires);
    s->groups = AP_NEW_ARRAY(arena, group, nwires);
    s->frozen = AP_NEW_ARRAY(arena, bool, nwires);
    for (uint32_t w = 0; w < nwires; w++) /* the root is the first of its group */
        s->of_wire[w] = root_of(parent, w) == w ? s->ngroups++ : s->of_wire[root_of(parent, w)];
    open_groups(s, arena, nwires, ports, nports);
    for (uint32_t w = 0; w < nwires; w++) {
        group *g = &s->groups[s->of_wire[w]];
        g->wire[g->nwires++] = w;
    }
    for (uint32_t p = 0; p < nports; p++)
        if (is_crowded(&ports[p]))
            add_port(s, &ports[p]);
    return s;
}

uint32_t ap_sim_ports_group(const ap_sim_ports *p, uint32_t wire)
{
    return p->of_wire[wire];
}

const uint32_t *ap_sim_ports_members(const ap_sim_ports *p, uint32_t g, uint32_t *out_n)
{
    *out_n = p->groups[g].nwires;
    return p->groups[g].wire;
}

/* The speed at which the wires that are not frozen, and are no slower than `least`, fill this port; 1 at most. */
static double limit_of(const ap_sim_ports *s, const port *p, const bool *moving, const double *speed, double least)
{
    double taken = 0, asked = 0;
    for (uint32_t i = 0; i < p->nusers; i++) {
        uint32_t w = p->user[i].wire;
        if (moving[w] && s->frozen[w])
            taken += p->user[i].part * speed[w];
        else if (moving[w])
            asked += p->user[i].part;
    }
    if (asked <= 1 - taken || asked <= 0)
        return 1;
    double limit = (1 - taken) / asked;
    return limit > least ? limit : least;
}

static void freeze_users(ap_sim_ports *s, const port *p, const bool *moving, double *speed, double at)
{
    for (uint32_t i = 0; i < p->nusers; i++) {
        uint32_t w = p->user[i].wire;
        if (moving[w] && !s->frozen[w]) {
            speed[w] = at;
            s->frozen[w] = true;
        }
    }
}

/* All speeds rise together until a port is full; its users stay at that, the others rise on. */
void ap_sim_ports_speeds(ap_sim_ports *s, uint32_t index, const bool *moving, double *speed)
{
    const group *g = &s->groups[index];
    for (uint32_t i = 0; i < g->nwires; i++)
        s->frozen[g->wire[i]] = false;
    for (double at = 0; at < 1;) {
        double next = 1;
        for (uint32_t p = 0; p < g->nports; p++) {
            s->limit[p] = limit_of(s, &g->port[p], moving, speed, at);
            next = s->limit[p] < next ? s->limit[p] : next;
        }
        at = next;
        for (uint32_t p = 0; p < g->nports && at < 1; p++)
            if (s->limit[p] <= at)
                freeze_users(s, &g->port[p], moving, speed, at);
    }
    for (uint32_t i = 0; i < g->nwires; i++)
        if (moving[g->wire[i]] && !s->frozen[g->wire[i]])
            speed[g->wire[i]] = 1;
}
