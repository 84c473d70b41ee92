#pragma once

// How macros walk through a list of names, at most 340.

#define TROUPE_PARENS ()
#define TROUPE_EXPAND(...)                                                     \
  TROUPE_EXPAND4(TROUPE_EXPAND4(TROUPE_EXPAND4(TROUPE_EXPAND4(__VA_ARGS__))))
#define TROUPE_EXPAND4(...)                                                    \
  TROUPE_EXPAND3(TROUPE_EXPAND3(TROUPE_EXPAND3(TROUPE_EXPAND3(__VA_ARGS__))))
#define TROUPE_EXPAND3(...)                                                    \
  TROUPE_EXPAND2(TROUPE_EXPAND2(TROUPE_EXPAND2(TROUPE_EXPAND2(__VA_ARGS__))))
#define TROUPE_EXPAND2(...)                                                    \
  TROUPE_EXPAND1(TROUPE_EXPAND1(TROUPE_EXPAND1(TROUPE_EXPAND1(__VA_ARGS__))))
#define TROUPE_EXPAND1(...) __VA_ARGS__

/// Calls `troupe_visit` with the name and the value of each field of
/// `troupe_self`.
#define TROUPE_EACH_FIELD(...)                                                 \
  __VA_OPT__(TROUPE_EXPAND(TROUPE_FIELD_STEP(__VA_ARGS__)))
#define TROUPE_FIELD_STEP(field, ...)                                          \
  troupe_visit(#field, troupe_self.field);                                     \
  __VA_OPT__(TROUPE_FIELD_AGAIN TROUPE_PARENS(__VA_ARGS__))
#define TROUPE_FIELD_AGAIN() TROUPE_FIELD_STEP

/// Defines `inspect` of the struct *type*, by which it travels between
/// processes: its fields, in the order in which they are written.
#define TROUPE_INSPECT(type, ...)                                              \
  template <class Inspector>                                                   \
  bool inspect(Inspector& f, type& x) {                                        \
    return f.object(x).fields(                                                 \
      __VA_OPT__(TROUPE_EXPAND(TROUPE_INSPECT_STEP(__VA_ARGS__))));            \
  }
#define TROUPE_INSPECT_STEP(member, ...)                                       \
  f.field(#member, x.member)                                                   \
    __VA_OPT__(, TROUPE_INSPECT_AGAIN TROUPE_PARENS(__VA_ARGS__))
#define TROUPE_INSPECT_AGAIN() TROUPE_INSPECT_STEP
