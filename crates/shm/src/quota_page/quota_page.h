/* The quota page, as the XDP program sees it: crates/sys/src/early_drop/early_drop.bpf.c.
 * The layout for Rust is in layout.rs beside this file. A test of it reads this file, so every
 * constant is one `#define NAME NUMBER`, and every word of the structure one line `u64 name;`.
 */

/* Slots of the page. The last one has other words: struct outcomes. */
#define SLOTS 1024
#define SLOT_BYTES 128
#define SLOT_UNKNOWN 0
#define SLOT_OUTCOMES 1023

/* The lower half of the word `action`. The upper half is the number of the socket. */
#define ACTION_PASS 0
#define ACTION_REDIRECT 1
#define ACTION_DROP 2

struct slot {
	/* Written by the owner. */
	u64 interval_ns;
	u64 step_ns;
	u64 depth_ns;
	u64 action;
	u64 generation;
	u64 limit;
	u64 link;
	u64 reserved_owner[1];
	/* Written by the program. */
	u64 next_eligible_ns;
	u64 passed;
	u64 dropped;
	u64 contended;
	u64 undelivered;
	u64 passed_bytes;
	u64 dropped_bytes;
	u64 behind;
};

/* Written by the program. */
struct outcomes {
	u64 not_ip;
	u64 discovery;
	u64 malformed;
	u64 unknown_fragments;
	u64 known_fragments;
	u64 lost_fragments;
	u64 hidden;
	u64 reserved[9];
};
