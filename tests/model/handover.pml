/* Fencing and handover of Signalbox on etcd and Open vSwitch, for the model checker spin. README.md explains it.
 *
 * A member is a controller process with its standby state: it claims the state in etcd, loads it, begins, claims the
 * master role of every switch that connects, reads its rule, and writes what differs. A member may stop for any time
 * between two steps, so pauses and slow networks need no steps of their own. Each fault has a budget.
 *
 * Ghost variables serve only the assertions. Variants (-DNAME) put one fault into the program.
 */

/* ---- size of the model, and budgets of faults */

#ifndef MEMBERS
#define MEMBERS 2
#endif
#ifndef SWITCHES
#define SWITCHES 1
#endif
#ifndef LAPSES
#define LAPSES 1    /* times that a member cannot renew its lease in time */
#endif
#ifndef STARTS
#define STARTS 0    /* processes that start in place of those that have ended */
#endif
#ifndef KILLS
#define KILLS 0
#endif
#ifndef DROPS
#define DROPS 0     /* connections that end, with all messages on them */
#endif
#ifndef RESTARTS
#define RESTARTS 0  /* switches that restart, and forget generation and rules */
#endif
#ifndef CUTS
#define CUTS 0      /* changes of cables, which members learn at any later time */
#endif
#ifndef CHANGES
#define CHANGES 0   /* changes of jobs, each with a bit of its own */
#endif
#ifndef WRITES
#define WRITES 1    /* requests to etcd that change jobs */
#endif
#ifndef TIMEOUTS
#define TIMEOUTS 0  /* requests to etcd that a member stops waiting for */
#endif
#ifndef COPIES
#define COPIES 0    /* requests that etcd may carry out once more */
#endif
#ifndef RESTORES
#define RESTORES 0  /* restores of etcd from a backup */
#endif

#ifndef CONNECTS
#define CONNECTS 1  /* whether switches connect at all */
#endif

#define ALL (MEMBERS * SWITCHES)
#define NOBODY 0
#define UNKNOWN 255
#define FIRST_JOB 1 /* jobs before any change, so that a switch without rules differs */
#define RULE(jobs, cut) ((jobs) + 16 * (cut))

/* A generation is smaller than another one by the sign of their difference, as in OpenFlow 1.3.5 section 6.3.6. */
#define IS_STALE(generation, last) ((((generation) - (last)) & 255) >= 128)

mtype = { STANDS_BY, CLAIMED, LOADED, ACTIVE, ENDED };                 /* phases of a member */
mtype = { EQUAL, MASTER, SLAVE };                                     /* roles at the switch */
mtype = { NONE, NEW, ASKING, WAITING, CHECKED, CLAIMING, HELD, LOST }; /* claims of a member */
mtype = { ROLE, GENERATION, READ, WRITE, STALE, IS_SLAVE };           /* messages, and their answers */

typedef Member {
  mtype phase = STANDS_BY;
  byte id;                 /* random id of the process, in its claim */
  bool valid;              /* is_claimed: the local deadline of the lease has not passed */
  byte epoch;
  byte jobs, commit;       /* jobs that it reported as saved, and the revision of etcd's key "commit" */
  byte cut = UNKNOWN;
  byte request;            /* request to etcd for which it waits, plus one; 0 for none */
  byte added;              /* job in this request */
  bool doubt;              /* etcd may have other jobs than these */
  byte order;              /* ghost: place of its claim among all claims */
}

typedef Connection {
  bool up;                 /* at the switch */
  mtype role;              /* at the switch */
  mtype claim = NONE;      /* at the member; NONE without the member's end of the connection */
  byte rule = UNKNOWN;     /* rule that the member knows the switch to hold */
  byte order;              /* ghost: order of the member when it claimed the role */
}

typedef Request { bool sent; byte member, id, commit, jobs }

typedef Etcd { byte claim, claimed, revision, base, jobs, commit, commit_by }

Member member[MEMBERS];
Connection connection[ALL];
chan to_switch[ALL] = [2] of { mtype, byte };
chan to_member[ALL] = [2] of { mtype, byte };
bool has_generation[SWITCHES];
byte generation[SWITCHES];
byte rule[SWITCHES];
Etcd etcd, backup;
Request request[WRITES];
byte requests, cut, ids, clock;
byte lapses, starts, kills, drops, restarts, cuts, changes, timeouts, copies, restores;

byte claims;                 /* ghost: number of claims in etcd so far */
byte confirmed[SWITCHES];    /* ghost: latest claim whose master role the switch has confirmed */
byte acknowledged;           /* ghost: jobs whose change was acknowledged */
byte highest;                /* ghost: highest epoch so far */
bool backed_up;
hidden byte value, i;

#define C (m * SWITCHES + s)
#define WANTED RULE(member[m].jobs, member[m].cut)
#if MEMBERS == 2
#define IS_VALID(process) ((member[0].valid && member[0].id == process) || (member[1].valid && member[1].id == process))
#define ALL_ENDED (member[0].phase == ENDED && member[1].phase == ENDED)
#else
#define IS_VALID(process) ((member[0].valid && member[0].id == process) || \
  (member[1].valid && member[1].id == process) || (member[2].valid && member[2].id == process))
#define ALL_ENDED (member[0].phase == ENDED && member[1].phase == ENDED && member[2].phase == ENDED)
#endif

/* ---- etcd */

inline make_claim(m) {
  etcd.claim = member[m].id;
  etcd.claimed = member[m].id;
  etcd.revision++;
  member[m].valid = true;
  if
  :: member[m].phase != ACTIVE -> member[m].epoch = etcd.revision
  :: else /* its epoch is in use */
  fi
}

inline note_claim(m) {
  if
  :: member[m].order != claims || claims == 0 -> claims++; member[m].order = claims
  :: else
  fi
}

/* A process ends. What it has sent is still under way. */
inline end_process(m) {
  member[m].phase = ENDED;
  member[m].valid = false;
  member[m].epoch = 0;
  member[m].jobs = 0;
  member[m].commit = 0;
  member[m].cut = UNKNOWN;
  member[m].request = 0;
  member[m].added = 0;
  member[m].doubt = false;
  i = 0;
  do
  :: i < SWITCHES ->
    connection[m * SWITCHES + i].claim = NONE;
    connection[m * SWITCHES + i].rule = UNKNOWN;
    do
    :: to_member[m * SWITCHES + i]?_, _
    :: empty(to_member[m * SWITCHES + i]) -> break
    od;
    i++
  :: else -> break
  od
}

inline send_jobs(m, wanted) {
  request[requests].sent = true;
  request[requests].member = m;
  request[requests].id = member[m].id;
  request[requests].commit = member[m].commit;
  request[requests].jobs = wanted;
  requests++;
  member[m].request = requests
}

#ifdef CLAIM_NOT_COMPARED
#define IS_FENCED(r) (etcd.commit == request[r].commit)
#elif defined(COMMIT_NOT_COMPARED)
#define IS_FENCED(r) (etcd.claim == request[r].id)
#else
#define IS_FENCED(r) (etcd.claim == request[r].id && etcd.commit == request[r].commit)
#endif

#define NO_JOB_LOST assert((etcd.jobs & acknowledged) == acknowledged)

/* One request on its way to etcd, which carries it out at any time, perhaps once more later, or never. */
proctype Writer(byte r) {
  byte m;
end:
  do
  :: atomic {
      request[r].sent ->
      m = request[r].member;
      if
      :: IS_FENCED(r) ->
        etcd.jobs = request[r].jobs;
        etcd.revision++;
        etcd.commit = etcd.revision;
        etcd.commit_by = r + 1;
        NO_JOB_LOST
      :: else
      fi;
      if
      :: member[m].request == r + 1 && member[m].id == request[r].id ->
        if
        :: etcd.commit_by == r + 1 -> /* also if a copy was carried out */
          member[m].jobs = request[r].jobs;
          member[m].commit = etcd.commit;
          acknowledged = acknowledged | member[m].added;
          member[m].doubt = false;
          NO_JOB_LOST
        :: else -> member[m].doubt = true
        fi;
        member[m].request = 0;
        member[m].added = 0
      :: else
      fi;
      if
      :: copies < COPIES -> copies++
      :: request[r].sent = false
      fi;
      m = 0
    }
  :: atomic { request[r].sent -> request[r].sent = false }
  od
}

#ifdef STOPPED_FIRST
#define MAY_RESTORE ALL_ENDED
#else
#define MAY_RESTORE true
#endif

#ifdef EARLY_BACKUP
#define MAY_BACK_UP (claims == 0)
#else
#define MAY_BACK_UP true
#endif

/* Leases end, cables change, and etcd is restored. */
proctype Time() {
end:
  do
  :: atomic { etcd.claim != NOBODY && !IS_VALID(etcd.claim) -> etcd.claim = NOBODY }
  :: atomic { cuts < CUTS -> cuts++; cut++ }
#if RESTORES > 0
  :: atomic {
      !backed_up && MAY_BACK_UP ->
      backed_up = true;
      backup.claim = etcd.claim;
      backup.claimed = etcd.claimed;
      backup.revision = etcd.revision;
      backup.base = etcd.base;
      backup.jobs = etcd.jobs;
      backup.commit = etcd.commit;
      backup.commit_by = etcd.commit_by
    }
  :: atomic {
      backed_up && restores < RESTORES && MAY_RESTORE ->
      restores++;
      clock = clock + 16;
      etcd.claim = backup.claim;
      etcd.claimed = backup.claimed;
      etcd.revision = backup.revision;
      etcd.base = backup.base;
      etcd.jobs = backup.jobs;
      etcd.commit = backup.commit;
      etcd.commit_by = backup.commit_by;
#ifdef RAISED
      etcd.base = highest + 1;
#endif
      acknowledged = etcd.jobs /* what is not in the backup is lost */
    }
#endif
  od
}

/* ---- members */

proctype Controller(byte m) {
end:
  do
  :: atomic { member[m].phase == STANDS_BY && etcd.claim == NOBODY -> make_claim(m); note_claim(m); member[m].phase = CLAIMED }
  :: atomic {
      member[m].phase == CLAIMED ->
      member[m].jobs = etcd.jobs;
      member[m].commit = etcd.commit;
      member[m].phase = LOADED
    }
  :: atomic {
      member[m].phase == LOADED ->
      if
      :: etcd.claim == member[m].id ->
#ifdef EPOCH_FROM_CLOCK
        if
        :: etcd.base < clock -> etcd.base = clock
        :: else
        fi;
#endif
        member[m].epoch = member[m].epoch + etcd.base;
        if
        :: highest < member[m].epoch -> highest = member[m].epoch
        :: else
        fi;
        member[m].phase = ACTIVE
      :: else -> end_process(m)
      fi
    }
  /* The lease is renewed, made again, or found to be another's. */
  :: atomic {
      (member[m].phase == CLAIMED || member[m].phase == LOADED || member[m].phase == ACTIVE) &&
      (!member[m].valid || etcd.claim != member[m].id) ->
      if
      :: etcd.claim == member[m].id -> member[m].valid = true; note_claim(m)
      :: etcd.claim == NOBODY && etcd.claimed == member[m].id -> make_claim(m); note_claim(m)
      :: else -> end_process(m)
      fi
    }
  :: atomic { member[m].valid && lapses < LAPSES -> lapses++; member[m].valid = false }
  :: atomic { member[m].phase != ENDED && kills < KILLS -> kills++; end_process(m) }
  :: atomic {
      member[m].phase == ENDED && starts < STARTS ->
      starts++;
      ids++;
      member[m].id = ids;
      member[m].phase = STANDS_BY
    }
  :: atomic { member[m].phase == ACTIVE && member[m].cut != cut -> member[m].cut = cut }
  /* Changes of jobs. That the claim is valid is checked too, but etcd alone is the fence. */
  :: atomic {
      member[m].phase == ACTIVE && member[m].request == 0 && !member[m].doubt &&
      changes < CHANGES && requests < WRITES ->
      changes++;
      member[m].added = 1 << changes;
      send_jobs(m, member[m].jobs | member[m].added)
    }
  :: atomic {
      member[m].request != 0 && timeouts < TIMEOUTS ->
      timeouts++;
      member[m].request = 0;
      member[m].added = 0;
      member[m].doubt = true
    }
  :: atomic {
      member[m].phase == ACTIVE && member[m].doubt && member[m].request == 0 && requests < WRITES ->
      member[m].commit = etcd.commit;
      if
      :: etcd.jobs == member[m].jobs -> member[m].doubt = false
      :: else -> send_jobs(m, member[m].jobs)
      fi
    }
  od
}

#ifdef LEASE_NOT_CHECKED
#define MAY_CLAIM true
#else
#define MAY_CLAIM member[m].valid
#endif

/* The member's end of its connection with one switch. */
proctype Session(byte m; byte s) {
end:
  do
#ifdef GENERATION_OF_THE_SWITCH
  :: atomic { connection[C].claim == NEW -> to_switch[C]!GENERATION, 0; connection[C].claim = ASKING }
  :: atomic {
      connection[C].claim == ASKING && to_member[C]?[GENERATION, _] ->
      to_member[C]?GENERATION, value;
      member[m].epoch = value + 1;
      value = 0;
      connection[C].claim = CHECKED
    }
#else
  /* The lease is checked in one step, and the claim is sent in another. */
  :: atomic { connection[C].claim == NEW && MAY_CLAIM -> connection[C].claim = CHECKED }
  :: atomic {
      connection[C].claim == NEW && !(MAY_CLAIM) ->
      to_switch[C]!GENERATION, 0;
      connection[C].claim = ASKING
    }
  :: atomic {
      connection[C].claim == ASKING && to_member[C]?[GENERATION, _] ->
      to_member[C]?GENERATION, value;
      connection[C].claim = (value == member[m].epoch -> CHECKED : WAITING);
      value = 0
    }
  :: atomic { connection[C].claim == WAITING && MAY_CLAIM -> connection[C].claim = CHECKED }
#endif
  :: atomic {
      connection[C].claim == CHECKED && nfull(to_switch[C]) ->
      to_switch[C]!ROLE, member[m].epoch;
      connection[C].order = member[m].order;
#ifdef WRITES_BEFORE_THE_ANSWER
      connection[C].rule = 0;
      connection[C].claim = HELD
#else
      connection[C].claim = CLAIMING
#endif
    }
#ifdef READS_BEFORE_THE_CLAIM
  :: atomic {
      (connection[C].claim == CHECKED || connection[C].claim == CLAIMING) && connection[C].rule == UNKNOWN &&
      empty(to_switch[C]) && empty(to_member[C]) -> to_switch[C]!READ, 0
    }
#endif
  :: atomic {
      connection[C].claim != NONE && connection[C].claim != LOST && to_member[C]?[ROLE, _] && nfull(to_switch[C]) ->
      to_member[C]?ROLE, _;
#ifndef WRITES_BEFORE_THE_ANSWER
      connection[C].claim = HELD;
#ifdef READS_BEFORE_THE_CLAIM
      if
      :: connection[C].rule == UNKNOWN -> to_switch[C]!READ, 0
      :: else
      fi
#else
      to_switch[C]!READ, 0
#endif
#endif
    }
  :: atomic { to_member[C]?[STALE, _] -> to_member[C]?STALE, _; connection[C].claim = LOST; connection[C].rule = UNKNOWN }
  :: atomic { to_member[C]?[IS_SLAVE, _] -> to_member[C]?IS_SLAVE, _; connection[C].claim = LOST; connection[C].rule = UNKNOWN }
  :: atomic {
      to_member[C]?[READ, _] ->
      to_member[C]?READ, value;
      if
      :: connection[C].claim != LOST -> connection[C].rule = value
      :: else
      fi;
      value = 0
    }
  :: atomic { connection[C].claim == LOST && to_member[C]?[ROLE, _] -> to_member[C]?ROLE, _ }
  /* Plans and repairs: also without a valid lease. */
  :: atomic {
      connection[C].claim == HELD && connection[C].rule != UNKNOWN && member[m].cut != UNKNOWN &&
      connection[C].rule != WANTED && nfull(to_switch[C]) ->
      to_switch[C]!WRITE, WANTED;
      connection[C].rule = WANTED
    }
  od
}

/* ---- switches, as Open vSwitch 3.1 behaves */

inline answer(m, s, kind, with) {
  if
  :: connection[C].claim != NONE -> to_member[C]!kind, with
  :: else
  fi
}

inline hang_up(m, s) {
  connection[C].up = false;
  connection[C].role = 0;
  connection[C].claim = NONE;
  connection[C].rule = UNKNOWN;
  connection[C].order = 0;
  do
  :: to_switch[C]?_, _
  :: empty(to_switch[C]) -> break
  od;
  do
  :: to_member[C]?_, _
  :: empty(to_member[C]) -> break
  od
}

/* The switch's end of its connection with one member. */
proctype Agent(byte m; byte s) {
end:
  do
  :: atomic {
      CONNECTS && !connection[C].up && member[m].phase == ACTIVE ->
      connection[C].up = true;
      connection[C].role = EQUAL;
      connection[C].claim = NEW
    }
  :: atomic { connection[C].up && drops < DROPS -> drops++; hang_up(m, s) }
  :: atomic { connection[C].up && connection[C].claim == NONE -> hang_up(m, s) }
  :: atomic {
      to_switch[C]?[ROLE, _] && nfull(to_member[C]) ->
      to_switch[C]?ROLE, value;
      if
      :: has_generation[s] && IS_STALE(value, generation[s]) -> answer(m, s, STALE, 0)
      :: else ->
        has_generation[s] = true;
        generation[s] = value;
        i = 0;
        do
        :: i < MEMBERS ->
          if
          :: connection[i * SWITCHES + s].role == MASTER -> connection[i * SWITCHES + s].role = SLAVE
          :: else
          fi;
          i++
        :: else -> break
        od;
        connection[C].role = MASTER;
        if
        :: confirmed[s] < connection[C].order -> confirmed[s] = connection[C].order
        :: else
        fi;
        answer(m, s, ROLE, value)
      fi;
      value = 0
    }
  :: atomic {
      to_switch[C]?[GENERATION, _] && nfull(to_member[C]) ->
      to_switch[C]?GENERATION, _;
      value = (has_generation[s] -> generation[s] : 255);
      answer(m, s, GENERATION, value);
      value = 0
    }
  :: atomic { to_switch[C]?[READ, _] && nfull(to_member[C]) -> to_switch[C]?READ, _; value = rule[s]; answer(m, s, READ, value); value = 0 }
  :: atomic {
      to_switch[C]?[WRITE, _] && nfull(to_member[C]) ->
      to_switch[C]?WRITE, value;
      if
      :: connection[C].role == SLAVE -> answer(m, s, IS_SLAVE, 0)
      :: else -> /* also in the role EQUAL */
        assert(connection[C].order >= confirmed[s]); /* one writer */
        assert(value != rule[s]);                    /* nothing is rewritten */
        rule[s] = value
      fi;
      value = 0
    }
  od
}

proctype Switch(byte s) {
  byte m;
end:
  do
  :: atomic {
      restarts < RESTARTS ->
      restarts++;
      has_generation[s] = false;
      generation[s] = 0;
      rule[s] = 0;
      m = 0;
      do
      :: m < MEMBERS -> hang_up(m, s); m++
      :: else -> break
      od;
      m = 0
    }
  od
}

/* When nothing more can happen, an active member holds every switch, and the switches hold its rules. */
proctype Outcome() {
  byte m, s;
end:
  timeout ->
  atomic {
    do
    :: m < MEMBERS ->
      s = 0;
      do
      :: s < SWITCHES ->
        assert(member[m].phase != ACTIVE || (etcd.claim == member[m].id && member[m].valid));
#if CONNECTS && !defined(MAY_BE_REFUSED)
        assert(member[m].phase != ACTIVE || connection[C].claim == HELD);
        assert(member[m].phase != ACTIVE || rule[s] == WANTED);
#endif
        s++
      :: else -> break
      od;
      m++
    :: else -> break
    od
  }
}

init {
  byte m, s;
  atomic {
    etcd.jobs = FIRST_JOB;
    etcd.base = 1;
    backup.jobs = FIRST_JOB;
    backup.base = 1;
    acknowledged = FIRST_JOB;
    do
    :: m < MEMBERS ->
      ids++;
      member[m].id = ids;
      run Controller(m);
      s = 0;
      do
      :: s < SWITCHES -> run Session(m, s); run Agent(m, s); s++
      :: else -> break
      od;
      m++
    :: else -> break
    od;
    s = 0;
    do
    :: s < SWITCHES -> run Switch(s); s++
    :: else -> break
    od;
    m = 0;
    do
    :: m < WRITES -> run Writer(m); m++
    :: else -> break
    od;
    m = 0;
    s = 0;
    run Time();
    run Outcome()
  }
}
