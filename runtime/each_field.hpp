#pragma once

// How macros walk through a list of names, at most 340.

#define TROUPE_PARENS_ ()
#define TROUPE_EXPAND_(...)                                                    \
  TROUPE_EXPAND4_(                                                             \
    TROUPE_EXPAND4_(TROUPE_EXPAND4_(TROUPE_EXPAND4_(__VA_ARGS__))))
#define TROUPE_EXPAND4_(...)                                                   \
  TROUPE_EXPAND3_(                                                             \
    TROUPE_EXPAND3_(TROUPE_EXPAND3_(TROUPE_EXPAND3_(__VA_ARGS__))))
#define TROUPE_EXPAND3_(...)                                                   \
  TROUPE_EXPAND2_(                                                             \
    TROUPE_EXPAND2_(TROUPE_EXPAND2_(TROUPE_EXPAND2_(__VA_ARGS__))))
#define TROUPE_EXPAND2_(...)                                                   \
  TROUPE_EXPAND1_(                                                             \
    TROUPE_EXPAND1_(TROUPE_EXPAND1_(TROUPE_EXPAND1_(__VA_ARGS__))))
#define TROUPE_EXPAND1_(...) __VA_ARGS__

/// Calls `troupe_visit` with the name and the value of each field of
/// `troupe_self`.
#define TROUPE_EACH_FIELD(...)                                                 \
  __VA_OPT__(TROUPE_EXPAND_(TROUPE_FIELD_STEP_(__VA_ARGS__)))
#define TROUPE_FIELD_STEP_(field, ...)                                         \
  troupe_visit(#field, troupe_self.field);                                     \
  __VA_OPT__(TROUPE_FIELD_AGAIN_ TROUPE_PARENS_(__VA_ARGS__))
#define TROUPE_FIELD_AGAIN_() TROUPE_FIELD_STEP_

/// Defines `inspect` of the struct *type*, by which it travels between
/// processes: its fields, in the order in which they are written.
#define TROUPE_INSPECT(type, ...)                                              \
  template <class Inspector>                                                   \
  bool inspect(Inspector& f, type& x) {                                        \
    return f.object(x).fields(                                                 \
      __VA_OPT__(TROUPE_EXPAND_(TROUPE_INSPECT_STEP_(__VA_ARGS__))));          \
  }
#define TROUPE_INSPECT_STEP_(member, ...)                                      \
  f.field(#member, x.member)                                                   \
    __VA_OPT__(, TROUPE_INSPECT_AGAIN_ TROUPE_PARENS_(__VA_ARGS__))
#define TROUPE_INSPECT_AGAIN_() TROUPE_INSPECT_STEP_
