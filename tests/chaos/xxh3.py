"""XXH3-64 with seed 0, written from its specification: the checker shares no code with what it checks."""

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MASK = (1 << 64) - 1
STRIPE = 64
STRIPES_PER_BLOCK = (len(SECRET) - STRIPE) // 8


def word(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at:at + size], "little")


def fold(a: int, b: int) -> int:
    product = a * b
    return (product & MASK) ^ (product >> 64)


def avalanche(x: int) -> int:
    x ^= x >> 37
    x = x * 0x165667919E3779F9 & MASK
    return x ^ x >> 32


def avalanche_64(x: int) -> int:
    x ^= x >> 33
    x = x * P64_2 & MASK
    x ^= x >> 29
    x = x * P64_3 & MASK
    return x ^ x >> 32


def up_to_16(data: bytes) -> int:
    size = len(data)
    if size > 8:
        low = word(data, 0) ^ word(SECRET, 24) ^ word(SECRET, 32)
        high = word(data, size - 8) ^ word(SECRET, 40) ^ word(SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return avalanche((size + swapped + high + fold(low, high)) & MASK)
    if size >= 4:
        x = word(data, size - 4, 4) + (word(data, 0, 4) << 32) ^ word(SECRET, 8) ^ word(SECRET, 16)
        x ^= (x << 49 | x >> 15) & MASK ^ (x << 24 | x >> 40) & MASK
        x = x * 0x9FB21C651E98DF25 & MASK
        x ^= (x >> 35) + size
        x = x * 0x9FB21C651E98DF25 & MASK
        return x ^ x >> 28
    if size:
        x = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return avalanche_64(x ^ word(SECRET, 0, 4) ^ word(SECRET, 4, 4))
    return avalanche_64(word(SECRET, 56) ^ word(SECRET, 64))


def mix(data: bytes, at: int, secret: int) -> int:
    return fold(word(data, at) ^ word(SECRET, secret), word(data, at + 8) ^ word(SECRET, secret + 8))


def up_to_240(data: bytes) -> int:
    size = len(data)
    sum_ = size * P64_1
    if size <= 128:
        for i in range((size - 1) // 32 + 1):
            sum_ += mix(data, 16 * i, 32 * i) + mix(data, size - 16 * (i + 1), 32 * i + 16)
        return avalanche(sum_ & MASK)
    for i in range(8):
        sum_ += mix(data, 16 * i, 16 * i)
    sum_ = avalanche(sum_ & MASK)
    for i in range(8, size // 16):
        sum_ += mix(data, 16 * i, 16 * (i - 8) + 3)
    return avalanche(sum_ + mix(data, size - 16, 136 - 17) & MASK)


def accumulate(sums: list, data: bytes, at: int, secret: int) -> None:
    for i in range(8):
        value = word(data, at + 8 * i)
        key = value ^ word(SECRET, secret + 8 * i)
        sums[i ^ 1] = sums[i ^ 1] + value & MASK
        sums[i] = sums[i] + (key & 0xFFFFFFFF) * (key >> 32) & MASK


def scramble(sums: list) -> None:
    for i in range(8):
        x = sums[i]
        x ^= x >> 47
        x ^= word(SECRET, len(SECRET) - STRIPE + 8 * i)
        sums[i] = x * P32_1 & MASK


def long(data: bytes) -> int:
    size = len(data)
    sums = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]
    for stripe in range((size - 1) // STRIPE):
        if stripe and stripe % STRIPES_PER_BLOCK == 0:
            scramble(sums)
        accumulate(sums, data, stripe * STRIPE, stripe % STRIPES_PER_BLOCK * 8)
    if (size - 1) // STRIPE and (size - 1) // STRIPE % STRIPES_PER_BLOCK == 0:
        scramble(sums)
    accumulate(sums, data, size - STRIPE, len(SECRET) - STRIPE - 7)
    result = size * P64_1
    for i in range(0, 8, 2):
        result += fold(sums[i] ^ word(SECRET, 11 + 8 * i), sums[i + 1] ^ word(SECRET, 19 + 8 * i))
    return avalanche(result & MASK)


def xxh3_64(data: bytes) -> int:
    if len(data) <= 16:
        return up_to_16(data)
    return up_to_240(data) if len(data) <= 240 else long(data)


def checksum_text(data: bytes) -> str:
    return f"{xxh3_64(data):016x}"
