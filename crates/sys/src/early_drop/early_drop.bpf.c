/* Drops packets beyond the quota of their destination, before the kernel spends work on them.
 *
 * EarlyDrop::attach (early_drop.rs) loads the object made from this file. `cargo xtask bpf`
 * compiles it again and compares. It reads packets of unknown senders, so every length is checked.
 * It calls no kernel function that is reserved for programs under the GPL.
 *
 *   (1) not IP: pass          (2) discovery of IPv6: pass
 *   (3) malformed: slot 0     (4) later fragment: the slot of the first one
 *       its destination is behind more headers than are read: drop
 *   (5) else the slot of the destination, or slot 0; slot 0 too for a frame that is not for the
 *       interface itself and would be redirected
 *   (6) charge the slot: pass, redirect or drop
 *
 * (1) and (2) are never limited. So the host can be reached whatever quotas it has.
 */

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#include "../../../shm/src/quota_page/quota_page.h"

#define SECTION(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline)) inline
#define READ_ONCE(word) (*(volatile u64 *)&(word))

/* This machine is little-endian, the network is not. */
#define SWAPPED16(number) __builtin_bswap16(number)
#define SWAPPED32(number) __builtin_bswap32(number)

/* Interface of the kernel: include/uapi/linux/bpf.h. */
struct xdp_md {
	u32 data;
	u32 data_end;
	u32 data_meta;
	u32 ingress_ifindex;
	u32 rx_queue_index;
	u32 egress_ifindex;
};

enum { XDP_ABORTED, XDP_DROP, XDP_PASS, XDP_TX, XDP_REDIRECT };

enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_XSKMAP = 17,
	BPF_F_MMAPABLE = 1024,
};

static void *(*const bpf_map_lookup_elem)(void *map, const void *key) = (void *)1;
static long (*const bpf_map_update_elem)(void *map, const void *key, const void *value,
					 u64 flags) = (void *)2;
static long (*const bpf_map_delete_elem)(void *map, const void *key) = (void *)3;
static u64 (*const bpf_ktime_get_ns)(void) = (void *)5;
static long (*const bpf_redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
static u64 (*const bpf_xdp_get_buff_len)(struct xdp_md *ctx) = (void *)188;

/* How the loader declares maps: the section "maps" has one of these for each. */
struct map {
	u32 type;
	u32 key_size;
	u32 value_size;
	u32 max_entries;
	u32 flags;
};

/* Addresses of IPv4 are mapped to IPv6. Addresses and port are in network order. */
struct destination {
	u32 address[4];
	u8 protocol;
	u8 zero;
	u16 port;
};

struct fragment_key {
	u32 source[4];
	u32 destination[4];
	u32 id;
	u32 protocol;
};

struct first_fragment {
	u32 slot;
	u32 is_lost;
	/* Of the slot, when the fragment came. */
	u64 generation;
	u64 at_ns;
};

#define MAPPED SWAPPED32(0xffff)
#define HEADERS_MAX 6
#define VLAN_TAGS_MAX 2
#define TRIES_MAX 16
/* As the kernel: net.ipv4.ipfrag_time. */
#define FRAGMENT_AGE_NS_MAX 30000000000ULL

struct map SECTION("maps") destinations = {
	.type = BPF_MAP_TYPE_HASH,
	.key_size = sizeof(struct destination),
	.value_size = sizeof(u32),
	.max_entries = 4096,
};

struct map SECTION("maps") slots = {
	.type = BPF_MAP_TYPE_ARRAY,
	.key_size = sizeof(u32),
	.value_size = sizeof(struct slot),
	.max_entries = SLOTS,
	.flags = BPF_F_MMAPABLE,
};

struct map SECTION("maps") fragments = {
	.type = BPF_MAP_TYPE_LRU_HASH,
	.key_size = sizeof(struct fragment_key),
	.value_size = sizeof(struct first_fragment),
	.max_entries = 4096,
};

struct map SECTION("maps") sockets = {
	.type = BPF_MAP_TYPE_XSKMAP,
	.key_size = sizeof(u32),
	.value_size = sizeof(u32),
	.max_entries = 256,
};

_Static_assert(sizeof(struct slot) == SLOT_BYTES, "a slot has two cache lines");
_Static_assert(sizeof(struct outcomes) == SLOT_BYTES, "the outcomes are in a slot");
_Static_assert(sizeof(struct destination) == 20, "the loader writes 20 bytes");
_Static_assert(sizeof(struct fragment_key) == 40, "no padding: the verifier wants all bytes set");

/* Interfaces of the network: fields in network order. */
struct ethernet {
	u16 addresses[6];
	u16 type;
};

struct vlan_tag {
	u16 id;
	u16 type;
};

struct ipv4 {
	u8 version_and_words;
	u8 service;
	u16 length;
	u16 id;
	u16 fragment;
	u8 hops;
	u8 protocol;
	u16 checksum;
	u32 source;
	u32 destination;
};

struct ipv6 {
	u32 version_and_flow;
	u16 length;
	u8 next;
	u8 hops;
	u32 source[4];
	u32 destination[4];
};

/* The first 8 bytes of every extension header. */
struct extension {
	u8 next;
	u8 length;
	u16 fragment;
	u32 id;
};

enum { HOP_OPTIONS = 0, TCP = 6, UDP = 17, ROUTING = 43, FRAGMENT = 44, AUTHENTICATION = 51,
       ICMPV6 = 58, DESTINATION_OPTIONS = 60 };

enum kind { NOT_IP, DISCOVERY, MALFORMED, HIDDEN, WHOLE, FIRST_FRAGMENT, LATER_FRAGMENT };

struct packet {
	struct destination destination;
	struct fragment_key key;
};

/* The port and the kind of what begins at `at`. `left` bytes of the IP packet remain. */
INLINE enum kind parse_transport(struct packet *packet, void *at, void *end, u32 left, u8 hops,
				 enum kind kind)
{
	u8 protocol = packet->destination.protocol;

	if (protocol == UDP || protocol == TCP) {
		u16 *ports = at;
		if (left < 4 || (void *)(ports + 2) > end)
			return MALFORMED;
		packet->destination.port = ports[1];
	}
	/* RFC 4861: discovery messages (133 to 137) with 255 hops come from this link.
	 * RFC 6980: never in fragments.
	 */
	if (protocol == ICMPV6 && hops == 255 && kind == WHOLE) {
		u8 *type = at;
		if (left >= 4 && (void *)(type + 4) <= end && type[0] >= 133 && type[0] <= 137)
			return DISCOVERY;
	}
	return kind;
}

INLINE enum kind parse_ipv4(struct packet *packet, void *at, void *end, u32 left)
{
	struct ipv4 *header = at;

	if ((void *)(header + 1) > end || header->version_and_words >> 4 != 4)
		return MALFORMED;
	u32 header_bytes = (header->version_and_words & 15) * 4;
	u32 length = SWAPPED16(header->length);
	if (header_bytes < sizeof(*header) || length < header_bytes || length > left)
		return MALFORMED;

	packet->destination.address[2] = MAPPED;
	packet->destination.address[3] = header->destination;
	packet->destination.protocol = header->protocol;
	u32 fragment = SWAPPED16(header->fragment);
	/* 0x2000: more follow. Below: the offset. */
	enum kind kind = WHOLE;
	if (fragment & 0x3fff) {
		kind = fragment & 0x1fff ? LATER_FRAGMENT : FIRST_FRAGMENT;
		packet->key.source[2] = MAPPED;
		packet->key.source[3] = header->source;
		packet->key.destination[2] = MAPPED;
		packet->key.destination[3] = header->destination;
		packet->key.id = header->id;
		packet->key.protocol = header->protocol;
		if (kind == LATER_FRAGMENT)
			return kind;
	}
	return parse_transport(packet, at + header_bytes, end, length - header_bytes, 0, kind);
}

INLINE void copy_address(u32 to[4], const u32 from[4])
{
	to[0] = from[0];
	to[1] = from[1];
	to[2] = from[2];
	to[3] = from[3];
}

/* All bits if `number` is 0, or else none. Without a branch: see extension_bytes. */
INLINE u32 all_if_zero(u32 number)
{
	asm volatile("" : "+r"(number));
	return 0 - ((number - 1) >> 31);
}

/* The length of an extension header. The verifier follows every path through the loop over
 * headers, so a branch here would double its work with each header.
 */
INLINE u32 extension_bytes(u32 type, u32 length)
{
	u32 authentication = all_if_zero(type ^ AUTHENTICATION);

	length &= ~all_if_zero(type ^ FRAGMENT);
	u32 bytes = (((length + 2) * 4) & authentication) | (((length + 1) * 8) & ~authentication);
	asm volatile("" : "+r"(bytes));
	/* Changes nothing, but tells the verifier a limit. */
	return bytes & 0xfff;
}

#define EXTENSIONS                                                                                 \
	(1ULL << HOP_OPTIONS | 1ULL << ROUTING | 1ULL << FRAGMENT | 1ULL << AUTHENTICATION |       \
	 1ULL << DESTINATION_OPTIONS)

INLINE enum kind parse_ipv6(struct packet *packet, void *at, void *end, u32 left)
{
	struct ipv6 *header = at;

	if ((void *)(header + 1) > end || (*(u8 *)at) >> 4 != 6)
		return MALFORMED;
	u32 length = SWAPPED16(header->length);
	if (length + sizeof(*header) > left)
		return MALFORMED;
	left = length;

	enum kind kind = WHOLE;
	u8 next = header->next;
	/* The kernel takes the length of the frame then, for jumbograms. */
	if (!length && next == HOP_OPTIONS)
		return HIDDEN;
	copy_address(packet->destination.address, header->destination);
	copy_address(packet->key.source, header->source);
	copy_address(packet->key.destination, header->destination);
	at += sizeof(*header);
	for (int headers = 0; headers <= HEADERS_MAX; headers++) {
		struct extension *extension = at;

		if (next > 63 || !(EXTENSIONS >> next & 1)) {
			packet->destination.protocol = next;
			return parse_transport(packet, at, end, left, header->hops, kind);
		}
		if (headers == HEADERS_MAX)
			return HIDDEN;
		if (left < sizeof(*extension) || (void *)(extension + 1) > end)
			return MALFORMED;
		u32 bytes = extension_bytes(next, extension->length);
		if (left < bytes)
			return MALFORMED;
		if (next == FRAGMENT) {
			u32 fragment = SWAPPED16(extension->fragment);
			/* 1: more follow. The upper 13 bits: the offset. */
			if (fragment & 0xfff9) {
				kind = fragment & 0xfff8 ? LATER_FRAGMENT : FIRST_FRAGMENT;
				packet->key.id = extension->id;
				packet->key.protocol = extension->next;
				if (kind == LATER_FRAGMENT)
					return kind;
			}
		}
		left -= bytes;
		next = extension->next;
		at += bytes;
	}
	return MALFORMED;
}

INLINE int is_tag(u16 type)
{
	return type == SWAPPED16(0x8100) || type == SWAPPED16(0x88a8);
}

/* Whether the owner of the slot may get the frame. One with a VLAN tag is for another network, and
 * one for another link address came because the interface is promiscuous. The kernel knows whose
 * they are.
 */
INLINE int is_for_owner(struct slot *slot, void *at, void *end)
{
	struct ethernet *ethernet = at;
	u64 link = READ_ONCE(slot->link);

	if (!link)
		return 1;
	if ((void *)(ethernet + 1) > end || is_tag(ethernet->type))
		return 0;
	u16 *to = ethernet->addresses;
	/* The lowest bit of the first byte: a group. */
	return to[0] & 1 || ((u64)to[0] | (u64)to[1] << 16 | (u64)to[2] << 32) == link;
}

INLINE enum kind parse(struct packet *packet, void *at, void *end, u32 left)
{
	struct ethernet *ethernet = at;

	if ((void *)(ethernet + 1) > end)
		return MALFORMED;
	u16 type = ethernet->type;
	at += sizeof(*ethernet);
	left -= sizeof(*ethernet);
	for (int tags = 0; tags < VLAN_TAGS_MAX; tags++) {
		struct vlan_tag *tag = at;
		if (!is_tag(type))
			break;
		if ((void *)(tag + 1) > end)
			return MALFORMED;
		type = tag->type;
		at += sizeof(*tag);
		left -= sizeof(*tag);
	}
	/* The kernel removes any number of tags without a number of a network. */
	if (is_tag(type))
		return HIDDEN;
	if (type == SWAPPED16(0x0800))
		return parse_ipv4(packet, at, end, left);
	if (type == SWAPPED16(0x86dd))
		return parse_ipv6(packet, at, end, left);
	return NOT_IP;
}

/* The slot of a destination: with its address, or else with any address of its family. */
INLINE u32 slot_of(struct destination *destination)
{
	u32 *slot = bpf_map_lookup_elem(&destinations, destination);

	if (!slot) {
		u32 *address = destination->address;
		int is_ipv4 = address[0] == 0 && address[1] == 0 && address[2] == MAPPED;
		if (!is_ipv4)
			address[0] = address[1] = address[2] = 0;
		address[3] = 0;
		slot = bpf_map_lookup_elem(&destinations, destination);
	}
	return slot ? *slot : SLOT_UNKNOWN;
}

enum charge { PASSED, DROPPED, CONTENDED };

/* The rule of docs/decisions/0024-network.md, section 1. The owner may change the quota meanwhile.
 * Then one packet is judged by a mixture of the old and the new quota.
 */
INLINE enum charge charge(struct slot *slot)
{
	u64 interval = READ_ONCE(slot->interval_ns);

	if (!interval)
		return PASSED;
	u64 at = bpf_ktime_get_ns();
	u64 step = READ_ONCE(slot->step_ns);
	if (step)
		at -= at % step;
	u64 latest = at + READ_ONCE(slot->depth_ns);
	for (int tries = 0; tries < TRIES_MAX; tries++) {
		u64 eligible = READ_ONCE(slot->next_eligible_ns);
		u64 next = (eligible > at ? eligible : at) + interval;
		if (next > latest)
			return DROPPED;
		if (__sync_val_compare_and_swap(&slot->next_eligible_ns, eligible, next) ==
		    eligible)
			return PASSED;
	}
	return CONTENDED;
}

INLINE void add(u64 *counter, u64 number)
{
	__sync_fetch_and_add(counter, number);
}

/* Whether fragments still follow `first`: it is not old, and its slot has the same destination. */
INLINE int is_valid(struct first_fragment *first)
{
	u32 number = first->slot;
	struct slot *slot = bpf_map_lookup_elem(&slots, &number);

	return slot && READ_ONCE(slot->generation) == first->generation &&
	       bpf_ktime_get_ns() - first->at_ns <= FRAGMENT_AGE_NS_MAX;
}

/* What happens to a packet of this slot. `is_lost`: its first fragment was dropped. */
INLINE int deliver(struct xdp_md *ctx, struct slot *slot, int is_lost, u64 bytes)
{
	u64 action = READ_ONCE(slot->action);
	u64 limit = READ_ONCE(slot->limit);
	enum charge result = DROPPED;

	/* The receiver has no room. Before the quota, of which that packet takes nothing. */
	if (limit && READ_ONCE(slot->passed) >= limit) {
		add(&slot->behind, 1);
		add(&slot->dropped_bytes, bytes);
		return XDP_DROP;
	}

	if ((u32)action != ACTION_DROP && !is_lost)
		result = charge(slot);
	if (result != PASSED) {
		add(result == CONTENDED ? &slot->contended : &slot->dropped, 1);
		add(&slot->dropped_bytes, bytes);
		return XDP_DROP;
	}
	if ((u32)action == ACTION_REDIRECT) {
		/* The last argument: without such a socket the packet is dropped. It belongs to
		 * the owner of the slot, so the kernel must not get it.
		 */
		u64 socket = (action >> 32) + ctx->rx_queue_index;
		if (bpf_redirect_map(&sockets, socket, XDP_DROP) != XDP_REDIRECT) {
			add(&slot->undelivered, 1);
			add(&slot->dropped_bytes, bytes);
			return XDP_DROP;
		}
		add(&slot->passed, 1);
		add(&slot->passed_bytes, bytes);
		return XDP_REDIRECT;
	}
	add(&slot->passed, 1);
	add(&slot->passed_bytes, bytes);
	return XDP_PASS;
}

SECTION("xdp.frags")
int early_drop(struct xdp_md *ctx)
{
	void *data = (void *)(u64)ctx->data;
	void *end = (void *)(u64)ctx->data_end;
	struct packet packet = {};
	u32 number = SLOT_OUTCOMES;
	int is_lost = 0;

	struct outcomes *outcomes = bpf_map_lookup_elem(&slots, &number);
	if (!outcomes)
		return XDP_PASS;
	u64 bytes = bpf_xdp_get_buff_len(ctx);
	enum kind kind = parse(&packet, data, end, bytes);
	number = SLOT_UNKNOWN;
	switch (kind) {
	case NOT_IP:
		add(&outcomes->not_ip, 1);
		return XDP_PASS;
	case DISCOVERY:
		add(&outcomes->discovery, 1);
		return XDP_PASS;
	case MALFORMED:
		add(&outcomes->malformed, 1);
		break;
	case HIDDEN:
		/* Its destination may have a quota, so it must not get around it. */
		add(&outcomes->hidden, 1);
		is_lost = 1;
		break;
	case LATER_FRAGMENT: {
		struct first_fragment *first = bpf_map_lookup_elem(&fragments, &packet.key);
		if (first && is_valid(first)) {
			number = first->slot;
			is_lost = first->is_lost;
			add(is_lost ? &outcomes->lost_fragments : &outcomes->known_fragments, 1);
		} else {
			add(&outcomes->unknown_fragments, 1);
		}
		break;
	}
	case WHOLE:
	case FIRST_FRAGMENT:
		number = slot_of(&packet.destination);
		break;
	}
	struct slot *slot = bpf_map_lookup_elem(&slots, &number);
	if (!slot)
		return XDP_PASS;
	if ((u32)READ_ONCE(slot->action) == ACTION_REDIRECT && !is_for_owner(slot, data, end)) {
		number = SLOT_UNKNOWN;
		slot = bpf_map_lookup_elem(&slots, &number);
		if (!slot)
			return XDP_PASS;
	}
	int verdict = deliver(ctx, slot, is_lost, bytes);
	if (kind == FIRST_FRAGMENT && number == SLOT_UNKNOWN && verdict != XDP_DROP) {
		/* Those that follow are of slot 0 in any case, and need no place in the map. */
		bpf_map_delete_elem(&fragments, &packet.key);
	} else if (kind == FIRST_FRAGMENT) {
		struct first_fragment first = {
			.slot = number,
			.is_lost = verdict == XDP_DROP,
			.generation = READ_ONCE(slot->generation),
			.at_ns = bpf_ktime_get_ns(),
		};
		bpf_map_update_elem(&fragments, &packet.key, &first, 0);
	}
	return verdict;
}

char SECTION("license") program_license[] = "Apache-2.0 OR MIT";
