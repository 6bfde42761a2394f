/* Holders of a switch, which a leader assigns in etcd, and Open vSwitch, for the model checker spin. README.md explains it.
 *
 * The leader is whatever process etcd lets write: it assigns the switch to any member at any time. That only one process
 * can be the leader is the subject of handover.pml. A member reads the assignment late, claims the switch, reads its
 * rule, and writes what differs. It may stop for any time between two steps. While it has no link to the control loop, a
 * holder reads the rule and repairs it once. Each fault has a budget.
 *
 * Ghost variables serve only the assertions. Variants (-DNAME) put one fault into the program.
 */

/* ---- size of the model, and budgets of faults */

#ifndef MEMBERS
#define MEMBERS 2
#endif
#ifndef HOLDERS
#define HOLDERS MEMBERS /* members to which the leader assigns the switch */
#endif
#ifndef ASSIGNMENTS
#define ASSIGNMENTS 3 /* changes of the assignment, the first one included */
#endif
#ifndef DROPS
#define DROPS 0       /* connections that end, with all messages on them */
#endif
#ifndef RESTARTS
#define RESTARTS 0    /* restarts of the switch, which forgets generation and rules */
#endif
#ifndef CUTS
#define CUTS 0        /* changes of cables, which the members learn at any later time */
#endif
#ifndef RESTORES
#define RESTORES 0    /* restores of etcd from a backup; a member that notices one ends, and does not come back */
#endif
#ifndef WRITES
#define WRITES 0      /* revisions by writes of other keys: so many before all assignments, and again after a restore */
#endif
#ifndef BREAKS
#define BREAKS 0      /* links between a member and the control loop that break */
#endif

#define NOBODY 255
#define UNKNOWN 255
#define NO_GENERATION 255
#define REPAIRED 128  /* part of the value of a rule that a holder has repaired without a control loop */

/* A generation is smaller than another one by the sign of their difference, as in OpenFlow 1.3.5 section 6.3.6. */
#define IS_STALE(generation, last) ((((generation) - (last)) & 255) >= 128)

mtype = { EQUAL, MASTER, SLAVE };                                       /* roles at the switch */
mtype = { NONE, NEW, LOOKING, WAITING, CHECKED, CLAIMING, ASIDE, DONE }; /* requests of a member */
mtype = { ROLE, LOOK, TO_SLAVE, READ, WRITE, STALE, IS_SLAVE };         /* messages, and their answers */

typedef Member {
  byte holder = NOBODY;  /* assignment as this member has read it last, and its generation */
  byte known;
  byte order;            /* ghost: place of that assignment among all */
#if RESTORES > 0
  byte at;               /* revision of that assignment, and of etcd, as this member knows them */
  byte seen;
  bool ended;            /* the member has noticed a restore */
#endif
  byte cut;              /* wanted rule as this member knows it */
  bool alone;            /* no link to the control loop */
}

typedef Connection {
  bool up;               /* at the switch */
  mtype role;            /* at the switch */
  mtype request = NONE;  /* at the member; NONE without the member's end of the connection */
  bool used;             /* the switch was admitted, and has not refused this member since */
  bool sure;             /* the assignment was the newest at some moment after the switch had connected */
  byte generation;       /* generation of the newest claim; 0 if the member does not hold the switch */
  byte order;            /* ghost: place of the assignment of that claim */
  byte rule = UNKNOWN;   /* rule that the member knows the switch to hold */
  byte asked;            /* transaction id of the newest request */
}

/* kind, value, transaction id; and to the switch: ghost order of the sender's assignment */
chan to_switch[MEMBERS] = [2] of { mtype, byte, byte, byte };
chan to_member[MEMBERS] = [3] of { mtype, byte, byte };

Member member[MEMBERS];
Connection connection[MEMBERS];

byte holder = NOBODY, assigned, changed, revision = WRITES, base = 1;
/* etcd; "assigned" is the generation: base and "changed", the revision of the last assignment */
byte old_holder = NOBODY, old_assigned, old_changed, old_revision;
/* backup of etcd, by default from before all assignments */
bool backed_up;
bool has_generation;     /* the switch */
byte generation, rule, cut = 1;
byte assignments, drops, restarts, cuts, restores, writes, breaks;

byte confirmed;          /* ghost: latest assignment whose holder the switch has confirmed as its master */
byte highest;            /* ghost: highest generation so far */
hidden byte value, xid, order, i;

#define ORDER (assignments + restores)
#if RESTORES > 0
#define ENDED member[m].ended
#define HAS_HOLDER (holder != NOBODY && !member[holder].ended)
#else
#define ENDED false
#define HAS_HOLDER (holder != NOBODY)
#endif

/* ---- both ends of a connection */

inline empty_queues(m) {
  do
  :: to_switch[m]?_, _, _, _
  :: empty(to_switch[m]) -> break
  od;
  do
  :: to_member[m]?_, _, _
  :: empty(to_member[m]) -> break
  od
}

inline hang_up(m) {
  connection[m].up = false;
  connection[m].role = 0;
  connection[m].request = NONE;
  connection[m].used = false;
  connection[m].sure = false;
  connection[m].generation = 0;
  connection[m].order = 0;
  connection[m].rule = UNKNOWN;
  connection[m].asked = 0;
  empty_queues(m)
}

inline ask(m, kind, with) {
  connection[m].asked++;
  to_switch[m]!kind, with, connection[m].asked, connection[m].order
}

/* ---- etcd and its leader */

inline assign_to(m) {
  assignments++;
  revision++;
  changed = revision;
  holder = m;
#ifdef ONE_GENERATION
  assigned = base;
#else
  assigned = base + changed;
#endif
  if
  :: highest < assigned -> highest = assigned
  :: else
  fi
}

proctype Etcd() {
  byte m;
end:
  do
  :: atomic { assignments < ASSIGNMENTS -> assign_to(0) }
  :: atomic { 0 < assignments && assignments < ASSIGNMENTS -> assign_to(1) } /* by symmetry, not the first one */
#if HOLDERS > 2
  :: atomic { assignments < ASSIGNMENTS -> assign_to(2) }
#endif
  :: atomic { cuts < CUTS -> cuts++; cut++ }
#if RESTORES > 0
  :: atomic { restores == RESTORES && writes < WRITES -> writes = WRITES; revision = revision + WRITES }
#ifdef LATE_BACKUP
  :: atomic {
      !backed_up && holder != NOBODY ->
      backed_up = true;
      old_holder = holder;
      old_assigned = assigned;
      old_changed = changed;
      old_revision = revision
    }
#endif
  :: atomic {
      restores < RESTORES ->
      restores++;
      holder = old_holder;
      assigned = old_assigned;
      changed = old_changed;
      revision = old_revision;
#ifndef BASE_NOT_RAISED
      base = highest + 1;
#endif
#ifdef STOPPED_FIRST
      holder = NOBODY; /* members that start again have other ids */
      m = 0;
      do
      :: m < MEMBERS ->
        hang_up(m);
        member[m].holder = NOBODY;
        member[m].known = 0;
        member[m].order = 0;
        member[m].at = 0;
        member[m].seen = 0;
        m++
      :: else -> break
      od;
      m = 0
#endif
    }
#endif
  od
}

/* ---- members */

#define HOLDS (member[m].holder == m)
#define WANTED (member[m].cut)

#ifdef REPAIRS_IN_ANY_ROLE
#define MAY_REPAIR (connection[m].request != NONE)
#else
#define MAY_REPAIR connection[m].used
#endif

#ifdef NOT_READ_AGAIN
#define MAY_CLAIM true
#else
#define MAY_CLAIM connection[m].sure
#endif

inline take(m) {
  member[m].holder = holder;
  member[m].known = assigned;
  member[m].order = ORDER;
#if RESTORES > 0
  member[m].at = changed;
#endif
  if
  :: connection[m].request != NONE && (HOLDS || connection[m].generation != 0) ->
    connection[m].request = NEW;
#ifdef USED_DURING_THE_CLAIM
    connection[m].used = connection[m].used && HOLDS
#else
    connection[m].used = false;
    connection[m].rule = UNKNOWN
#endif
  :: else
  fi
}

#define IS_KEY_OLDER (holder != NOBODY && changed < member[m].at)
#ifdef KEY_NOT_COMPARED
#define IS_RESTORED (revision < member[m].seen)
#define KEEPS IS_KEY_OLDER /* the member keeps the assignment that it knows */
#else
#define IS_RESTORED (revision < member[m].seen || IS_KEY_OLDER)
#define KEEPS false
#endif

/* The watch of a member, however late. A smaller generation is an old reading, and changes nothing. */
proctype Watch(byte m) {
end:
  do
#if RESTORES > 0
  :: atomic {
      !ENDED && (revision != member[m].seen || (member[m].known != assigned && !KEEPS)) ->
      if
      :: IS_RESTORED ->
        member[m].ended = true;
        hang_up(m);
        member[m].holder = NOBODY;
        member[m].known = 0;
        member[m].order = 0;
        member[m].at = 0;
        member[m].seen = 0
      :: else ->
        member[m].seen = revision;
        if
        :: member[m].known != assigned && !KEEPS -> take(m)
        :: else
        fi
      fi
    }
#else
  :: atomic {
      holder != NOBODY && member[m].known != assigned && (member[m].known == 0 || !IS_STALE(assigned, member[m].known)) ->
      take(m)
    }
#endif
#ifdef ONE_GENERATION
  :: atomic { holder != NOBODY && member[m].known == assigned && member[m].holder != holder -> take(m) }
#endif
  :: atomic { member[m].cut != cut -> member[m].cut = cut }
  od
}

proctype Session(byte m) {
end:
  do
  /* The first request over a connection, or for another assignment. */
  :: atomic {
      connection[m].request == NEW && nfull(to_switch[m]) ->
      connection[m].generation = (HOLDS -> member[m].known : 0);
      connection[m].order = (HOLDS -> member[m].order : 0);
      if
      :: HOLDS && MAY_CLAIM -> connection[m].request = CHECKED
      :: else -> ask(m, LOOK, 0); connection[m].request = LOOKING
      fi
    }
  /* The member reads the assignment once more, after the switch has connected. This read sees all earlier writes. */
  :: atomic {
      connection[m].request == WAITING && connection[m].generation != 0 && !connection[m].sure &&
#if RESTORES > 0
      !IS_RESTORED && connection[m].generation == member[m].known &&
      (KEEPS || (holder == m && assigned == member[m].known)) ->
      member[m].seen = revision;
      member[m].order = (KEEPS -> member[m].order : ORDER);
      connection[m].order = member[m].order;
#else
      holder == m && assigned == connection[m].generation ->
#endif
      connection[m].sure = true
    }
  :: atomic { connection[m].request == WAITING && connection[m].generation != 0 && MAY_CLAIM -> connection[m].request = CHECKED }
  /* A switch of another holder is asked again; it matters only after it has changed. */
  :: atomic {
      connection[m].request == WAITING && connection[m].generation == 0 && has_generation &&
      connection[m].role != MASTER -> connection[m].request = NEW
    }
  :: atomic {
      connection[m].request == CHECKED && nfull(to_switch[m]) ->
      ask(m, ROLE, connection[m].generation);
#ifdef WRITES_BEFORE_THE_ANSWER
      connection[m].rule = 0;
      connection[m].used = true;
      connection[m].request = DONE
#else
      connection[m].request = CLAIMING
#endif
    }
  /* Answers. Only the answer to the newest request counts. */
  :: atomic {
      to_member[m]?[LOOK, _, _] && nfull(to_switch[m]) ->
      to_member[m]?LOOK, value, xid;
      if
      :: connection[m].request != LOOKING || xid != connection[m].asked
      :: connection[m].request == LOOKING && xid == connection[m].asked && connection[m].generation != 0 ->
        connection[m].request = (value == connection[m].generation -> CHECKED : WAITING)
      :: connection[m].request == LOOKING && xid == connection[m].asked && connection[m].generation == 0 ->
        if
        :: value != NO_GENERATION && connection[m].role == EQUAL ->
          ask(m, TO_SLAVE, value);
          connection[m].request = ASIDE
        :: connection[m].role == SLAVE -> connection[m].request = DONE
        :: else -> connection[m].request = WAITING
        fi
      fi;
      value = 0;
      xid = 0
    }
  :: atomic {
      to_member[m]?[TO_SLAVE, _, _] ->
      to_member[m]?TO_SLAVE, _, xid;
      if
      :: connection[m].request == ASIDE && xid == connection[m].asked -> connection[m].request = DONE
      :: else
      fi;
      xid = 0
    }
  :: atomic {
      to_member[m]?[ROLE, _, _] && nfull(to_switch[m]) ->
      to_member[m]?ROLE, _, xid;
      if
      :: connection[m].request == CLAIMING && xid == connection[m].asked ->
        connection[m].request = DONE;
        connection[m].used = true;
        connection[m].rule = UNKNOWN;
        ask(m, READ, 0)
      :: else
      fi;
      xid = 0
    }
  :: atomic {
      to_member[m]?[READ, _, _] ->
      to_member[m]?READ, value, xid;
      if
      :: (connection[m].used || (member[m].alone && MAY_REPAIR)) && xid == connection[m].asked ->
        connection[m].rule = value
      :: else
      fi;
      value = 0;
      xid = 0
    }
  :: atomic {
      to_member[m]?[STALE, _, _] ->
      to_member[m]?STALE, _, xid;
      if
      :: connection[m].request == CLAIMING && xid == connection[m].asked ->
        connection[m].request = DONE; connection[m].used = false; connection[m].rule = UNKNOWN
      :: connection[m].request == ASIDE && xid == connection[m].asked -> connection[m].request = WAITING
      :: else
      fi;
      xid = 0
    }
  :: atomic {
      to_member[m]?[IS_SLAVE, _, _] ->
      to_member[m]?IS_SLAVE, _, _;
      connection[m].used = false;
      connection[m].rule = UNKNOWN
    }
  /* The link to the control loop breaks and returns. Who decides from then on reads the rule of the switch. */
  :: atomic {
      (breaks < BREAKS || member[m].alone) && nfull(to_switch[m]) ->
      if
      :: member[m].alone -> member[m].alone = false
      :: else -> breaks++; member[m].alone = true
      fi;
      connection[m].rule = UNKNOWN;
      if
      :: connection[m].used || (member[m].alone && MAY_REPAIR) -> ask(m, READ, 0)
      :: else
      fi
    }
  /* Local repair. */
  :: atomic {
      member[m].alone && MAY_REPAIR && connection[m].rule != UNKNOWN && connection[m].rule != 0 &&
      connection[m].rule < REPAIRED && nfull(to_switch[m]) ->
      connection[m].rule = connection[m].rule + REPAIRED;
      to_switch[m]!WRITE, connection[m].rule, 0, connection[m].order
    }
  /* Plans and repairs of the control loop. */
  :: atomic {
      !member[m].alone && connection[m].used && connection[m].rule != UNKNOWN && member[m].cut != 0 &&
      connection[m].rule != WANTED && nfull(to_switch[m]) ->
      to_switch[m]!WRITE, WANTED, 0, connection[m].order;
      connection[m].rule = WANTED
    }
  od
}

/* ---- the switch, as Open vSwitch 3.1 behaves */

inline demote() {
  i = 0;
  do
  :: i < MEMBERS ->
    if
    :: connection[i].role == MASTER -> connection[i].role = SLAVE
    :: else
    fi;
    i++
  :: else -> break
  od
}

/* The switch's end of its connection with one member. */
proctype Agent(byte m) {
end:
  do
  :: atomic { !connection[m].up && !ENDED -> connection[m].up = true; connection[m].role = EQUAL; connection[m].request = NEW }
  :: atomic { connection[m].up && drops < DROPS -> drops++; hang_up(m) }
  :: atomic {
      nfull(to_member[m]) && (to_switch[m]?[ROLE, _, _, _] || to_switch[m]?[TO_SLAVE, _, _, _]) ->
      if
      :: to_switch[m]?[ROLE, _, _, _] ->
        to_switch[m]?ROLE, value, xid, order;
        if
        :: has_generation && IS_STALE(value, generation) -> to_member[m]!STALE, 0, xid
        :: else ->
          has_generation = true;
          generation = value;
          demote();
          connection[m].role = MASTER;
          if
          :: confirmed < order -> confirmed = order
          :: else
          fi;
          to_member[m]!ROLE, value, xid
        fi
      :: else ->
        to_switch[m]?TO_SLAVE, value, xid, _;
        if
        :: has_generation && IS_STALE(value, generation) -> to_member[m]!STALE, 0, xid
        :: else ->
          has_generation = true;
          generation = value;
          connection[m].role = SLAVE;
          to_member[m]!TO_SLAVE, value, xid
        fi
      fi;
      value = 0;
      xid = 0;
      order = 0
    }
  :: atomic {
      to_switch[m]?[LOOK, _, _, _] && nfull(to_member[m]) ->
      to_switch[m]?LOOK, _, xid, _;
      value = (has_generation -> generation : NO_GENERATION);
      to_member[m]!LOOK, value, xid;
      value = 0;
      xid = 0
    }
  :: atomic {
      to_switch[m]?[READ, _, _, _] && nfull(to_member[m]) ->
      to_switch[m]?READ, _, xid, _;
      to_member[m]!READ, rule, xid;
      xid = 0
    }
  :: atomic {
      to_switch[m]?[WRITE, _, _, _] && nfull(to_member[m]) ->
      to_switch[m]?WRITE, value, _, order;
      if
      :: connection[m].role == SLAVE -> to_member[m]!IS_SLAVE, 0, 0
      :: else -> /* also in the role EQUAL */
        assert(order >= confirmed); /* one writer */
        assert(value != rule);      /* nothing is rewritten */
        rule = value
      fi;
      value = 0;
      order = 0
    }
  od
}

proctype Switch() {
  byte m;
end:
  do
  :: atomic {
      restarts < RESTARTS ->
      restarts++;
      has_generation = false;
      generation = 0;
      rule = 0;
      m = 0;
      do
      :: m < MEMBERS -> hang_up(m); m++
      :: else -> break
      od;
      m = 0
    }
  od
}

/* When nothing more can happen, the holder controls the switch, which has its rule, and no other member does. */
proctype Outcome() {
  byte m;
end:
  timeout ->
  atomic {
    do
    :: m < MEMBERS ->
#ifndef MAY_BE_REFUSED
      assert(!HAS_HOLDER || connection[m].used == (holder == m));
      assert(!HAS_HOLDER || holder != m || rule == cut);
      assert(!HAS_HOLDER || ENDED || holder == m || connection[m].role == SLAVE);
#endif
      m++
    :: else -> break
    od
  }
}

init {
  byte m;
  atomic {
    do
    :: m < MEMBERS ->
#if RESTORES > 0
      member[m].cut = cut; /* fewer states: the rule is known from the beginning */
#endif
      run Watch(m); run Session(m); run Agent(m); m++
    :: else -> break
    od;
    run Etcd();
    run Switch();
    run Outcome();
    m = 0
  }
}
