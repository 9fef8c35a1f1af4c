/*
   The options of a type are a table with one row for each option, for example

     {"-pc_afsai_max_steps", "the most steps in which a row of the factor is extended, k_max", "PCAFSAISetMaxSteps",
      Field<&PC_AFSAI::params, &AFSAIParams::max_steps>(Between(0, kAFSAIMostSteps)), Invalidates::EVERYTHING}

   A row names the key, what it sets, the setter, the place of the value in the type's data with the values that are allowed, and
   the part of a set-up that a change of the value makes useless. The table gives the type its setters and getters with the check of
   the value, the calls of PetscOptionsInt() and its kin, and the methods that Create composes and Destroy takes away. From the same
   rows, and from the comments above them, scripts/options writes the public functions with their manual pages into the type's
   *_api.cxx, their prototypes into finepc.h, and the keys into the manual page of the type; its first lines say how.

   The data of a type has the table as a static member `options`, since a setter looks for its own row there.
*/
#pragma once

#include <petsc/private/kspimpl.h>
#include <petsc/private/pcimpl.h>

#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>

#include "entry.h"
#include "sparse/offload.h"

/* A changed option makes useless all that a set-up has made, or the values but not the patterns, or nothing. */
enum class Invalidates { EVERYTHING, VALUES, NOTHING };

void           PCReuseForget(PC); /* pc/reuse.cxx: what a change of options makes useless is not kept for new values */
PetscErrorCode PCReuseFromOptions(PC, OptionItems);

inline void Invalidate(PC pc, Invalidates part)
{
  if (part == Invalidates::VALUES && pc->failedreason)
    part = Invalidates::EVERYTHING; /* PCSetReusePreconditioner() keeps nothing */
  if (part != Invalidates::NOTHING) PCReuseForget(pc);
  if (part != Invalidates::NOTHING) pc->failedreason = PC_NOERROR;    /* or KSPSolve() of PETSc before 3.26 ends by the old one */
  if (part == Invalidates::EVERYTHING) pc->setupcalled = PETSC_FALSE; /* the next set-up is like the first one */
  if (part == Invalidates::VALUES) PCForgetValues(pc);                /* the next set-up takes the values for new ones */
}

inline void Invalidate(KSP ksp, Invalidates part)
{
  if (part != Invalidates::NOTHING) ksp->setupstage = KSP_SETUP_NEW;
}

/* The shortest text for x. PETSc's own %g is not used, since it puts a point behind whole numbers. */
inline std::string Number(double x)
{
  char text[32];
  std::snprintf(text, sizeof(text), "%.12g", x);
  return text;
}

/* The values that an option may have. */
struct Allowed {
  double             least = -std::numeric_limits<double>::infinity(), most = std::numeric_limits<double>::infinity();
  bool               below                    = false;   /* `most` itself is not allowed */
  const char *const *names                    = nullptr; /* the names of an enumeration, as PetscOptionsEnum() takes them */
  PetscErrorCode (*list)(PetscFunctionList *) = nullptr; /* gets the list of the names that a text may be */
  bool above                                  = false;   /* `least` itself is not allowed */

  std::string Range() const
  {
    if (above) return "above " + Number(least) + " and below " + Number(most);
    if (most == std::numeric_limits<double>::infinity()) return "at least " + Number(least);
    if (below) return "at least " + Number(least) + " and below " + Number(most);
    return "between " + Number(least) + " and " + Number(most);
  }
};
constexpr Allowed AtLeast(double least)
{
  return {least};
}
constexpr Allowed Between(double least, double most)
{
  return {least, most};
}
constexpr Allowed AtLeastAndBelow(double least, double most)
{
  return {least, most, true};
}
constexpr Allowed AboveAndBelow(double least, double most)
{
  return {least, most, true, nullptr, nullptr, true};
}
constexpr Allowed OneOf(const char *const names[])
{
  return {0, 0, false, names};
}
constexpr Allowed OneOf(PetscErrorCode (*list)(PetscFunctionList *))
{
  return {0, 0, false, nullptr, list};
}

template <typename Object>
struct Option;

/* The ways to the value of an option: where it is, which values it may have, and how an object gets its methods and its value. */
template <typename Object>
struct OptionAccess {
  const void *field; /* an address that no other option has, by which the table finds the option */
  Allowed     allowed;
  PetscErrorCode (*compose)(Object, const Option<Object> &, PetscBool);
  PetscErrorCode (*from_options)(Object, const Option<Object> &, OptionItems);
  PetscErrorCode (*copy)(Object from, Object to);

  constexpr OptionAccess(const void *field, Allowed allowed, decltype(compose) compose, decltype(from_options) from_options,
                         decltype(copy) copy) :
      field(field), allowed(allowed), compose(compose), from_options(from_options), copy(copy)
  {
  }
};

template <typename Object>
struct Option {
  const char          *key, *text, *setter;
  OptionAccess<Object> access;
  Invalidates          invalidates = Invalidates::EVERYTHING;

  template <typename T>
  PetscErrorCode Check(Object object, const T &value) const
  {
    const MPI_Comm comm    = PetscObjectComm((PetscObject)object);
    const Allowed &allowed = access.allowed;

    PetscFunctionBegin;
    if constexpr (std::is_same_v<T, PetscBool>) {
    } else if constexpr (std::is_enum_v<T>) {
      int count = 0; /* strings in the list; the last two are the name of the type and the prefix, and null ends the list */
      while (allowed.names[count]) count++;
      PetscCheck((int)value >= 0 && (int)value < count - 2, comm, PETSC_ERR_ARG_OUTOFRANGE, "%s has no value %d", key, (int)value);
    } else if constexpr (std::is_arithmetic_v<T>) {
      const double x      = (double)value;
      const bool   inside = (allowed.above ? x > allowed.least : x >= allowed.least) &&
                          (allowed.below ? x < allowed.most : x <= allowed.most); /* false for NaN */
      PetscCheck(inside, comm, PETSC_ERR_ARG_OUTOFRANGE, "%s is %s, but must be %s", key, Number(x).c_str(),
                 allowed.Range().c_str());
    } else PetscCheck(value && *value, comm, PETSC_ERR_ARG_OUTOFRANGE, "%s is empty", key);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
};

template <typename Object>
struct OptionTable {
  const char           *title; /* the headline in the text of -help */
  const Option<Object> *begin, *end;

  template <size_t Count>
  constexpr OptionTable(const char *title, const Option<Object> (&options)[Count], int but = 0) :
      title(title), begin(options), end(options + Count - but)
  {
  }
  const Option<Object> &Find(const void *field) const
  {
    const Option<Object> *option = begin;
    while (option->access.field != field) option++;
    return *option;
  }
  PetscErrorCode Compose(Object object, PetscBool compose) const
  {
    PetscFunctionBegin;
    for (const Option<Object> *option = begin; option != end; option++) PetscCall(option->access.compose(object, *option, compose));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  /* Gives another object of the type the values of all options. */
  PetscErrorCode Copy(Object from, Object to) const
  {
    PetscFunctionBegin;
    for (const Option<Object> *option = begin; option != end; option++) PetscCall(option->access.copy(from, to));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  PetscErrorCode SetFromOptions(Object object, OptionItems PetscOptionsObject) const
  {
    PetscFunctionBegin;
    PetscOptionsHeadBegin(PetscOptionsObject, title);
    for (const Option<Object> *option = begin; option != end; option++)
      PetscCall(option->access.from_options(object, *option, PetscOptionsObject));
    PetscOptionsHeadEnd();
    PetscFunctionReturn(PETSC_SUCCESS);
  }
};

/*
   Composes a setter and the getter that belongs to it, or takes them away if they are null. The names are made without new memory,
   so that an object can be destroyed when there is none.
*/
template <typename Object, typename Setter, typename Getter>
PetscErrorCode ComposeMethods(Object object, const char setter[], Setter set, Getter get)
{
  char set_name[128], get_name[128];

  PetscFunctionBegin;
  PetscCall(PetscSNPrintf(set_name, sizeof(set_name), "%s_C", setter));
  PetscCall(PetscObjectComposeFunction((PetscObject)object, set_name, set));
  if constexpr (!std::is_null_pointer_v<Getter>) {
    char *const verb = std::strstr(set_name, "Set");

    PetscCall(PetscSNPrintf(get_name, sizeof(get_name), "%.*sGet%s", (int)(verb - set_name), set_name, verb + 3));
    PetscCall(PetscObjectComposeFunction((PetscObject)object, get_name, get));
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The type in which the setter takes the value: a text is kept as std::string, but the setter takes it as const char *. */
template <typename Value>
using Argument = std::conditional_t<std::is_same_v<Value, std::string>, const char *, Value>;

using OptionText = char[256]; /* the longest value that is a text */

/*
   Looks for the option in the options database. On entry `value` is the default; on return it is the value in the database, if
   the option is there, which `given` tells. `text` is the memory of a value that is a text.
*/
template <typename Object, typename T>
PetscErrorCode FindInDatabase(const Option<Object> &o, OptionItems PetscOptionsObject, T *value, OptionText *text, PetscBool *given)
{
  PetscFunctionBegin;
  if constexpr (std::is_same_v<T, PetscBool>) PetscCall(PetscOptionsBool(o.key, o.text, o.setter, *value, value, given));
  else if constexpr (std::is_enum_v<T>)
    PetscCall(PetscOptionsEnum(o.key, o.text, o.setter, o.access.allowed.names, (PetscEnum)*value, (PetscEnum *)value, given));
  else if constexpr (std::is_same_v<T, PetscInt>) PetscCall(PetscOptionsInt(o.key, o.text, o.setter, *value, value, given));
  else if constexpr (std::is_same_v<T, PetscReal>) PetscCall(PetscOptionsReal(o.key, o.text, o.setter, *value, value, given));
  else {
    PetscFunctionList list;
    PetscCall(o.access.allowed.list(&list));
    PetscCall(PetscOptionsFList(o.key, o.text, o.setter, list, *value, *text, sizeof(*text), given));
    *value = *text;
  }
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* An option whose value is a field of the type's data: a member, or a member of a member. */
template <auto... Path>
struct Field {
  template <typename Class, typename T>
  static Class OwnerOf(T Class::*);
  template <auto First, auto...>
  struct OwnerOfPath {
    using Type = decltype(OwnerOf(First));
  };
  using Owner = typename OwnerOfPath<Path...>::Type;
  using Value = std::remove_reference_t<decltype((std::declval<Owner &>().*....*Path))>;

  Allowed allowed;

  constexpr Field(Allowed allowed = {}) : allowed(allowed) { }
  template <typename Object>
  constexpr operator OptionAccess<Object>() const
  {
    return {&kAddress, allowed, Compose<Object>, FromOptions<Object>, Copy<Object>};
  }

private:
  static constexpr char kAddress = 0;

  template <typename Object>
  static Value &At(Object object)
  {
    return (*(Owner *)object->data.*....*Path);
  }
  template <typename Object>
  static PetscErrorCode Set(Object object, Argument<Value> value)
  {
    const Option<Object> &option = Owner::options.Find(&kAddress);

    PetscFunctionBegin;
    PetscCall(option.Check(object, value));
    if (At(object) != value) Invalidate(object, option.invalidates);
    At(object) = value;
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  template <typename Object>
  static PetscErrorCode Get(Object object, Argument<Value> *value)
  {
    PetscFunctionBegin;
    if constexpr (std::is_same_v<Value, std::string>) *value = At(object).c_str();
    else *value = At(object);
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  template <typename Object>
  static PetscErrorCode Compose(Object object, const Option<Object> &option, PetscBool compose)
  {
    PetscFunctionBegin;
    PetscCall(
      ComposeMethods(object, option.setter, compose ? Entry<Set<Object>> : nullptr, compose ? Entry<Get<Object>> : nullptr));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  template <typename Object>
  static PetscErrorCode FromOptions(Object object, const Option<Object> &option, OptionItems items)
  {
    Argument<Value> value;
    OptionText      text;
    PetscBool       given;

    PetscFunctionBegin;
    PetscCall(Get(object, &value));
    PetscCall(FindInDatabase(option, items, &value, &text, &given));
    if (given) PetscCall(Set(object, value));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  template <typename Object>
  static PetscErrorCode Copy(Object from, Object to)
  {
    Argument<Value> value;

    PetscFunctionBegin;
    PetscCall(Get(from, &value));
    PetscCall(Set(to, value));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
};

/* An option with functions of its own. A type uses it for one of PETSc's own setters, which have no getter among the methods. */
template <auto GetValue, auto SetValue>
struct Through {
  template <typename Object>
  constexpr operator OptionAccess<Object>() const
  {
    return {&kAddress, Allowed{}, Compose<Object>, FromOptions<Object>, Copy<Object>};
  }

private:
  static constexpr char kAddress = 0;

  template <typename Object>
  static PetscErrorCode Compose(Object object, const Option<Object> &option, PetscBool compose)
  {
    PetscFunctionBegin;
    PetscCall(ComposeMethods(object, option.setter, compose ? Entry<SetValue> : nullptr, nullptr));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  template <typename Object, typename T>
  static T ValueOf(PetscErrorCode (*)(Object, T *));
  template <typename Object>
  static PetscErrorCode FromOptions(Object object, const Option<Object> &option, OptionItems items)
  {
    decltype(ValueOf(GetValue)) value;
    OptionText                  text;
    PetscBool                   given;

    PetscFunctionBegin;
    PetscCall(GetValue(object, &value));
    PetscCall(FindInDatabase(option, items, &value, &text, &given));
    if (given) PetscCall(SetValue(object, value));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
  template <typename Object>
  static PetscErrorCode Copy(Object from, Object to)
  {
    decltype(ValueOf(GetValue)) value;

    PetscFunctionBegin;
    PetscCall(GetValue(from, &value));
    PetscCall(SetValue(to, value));
    PetscFunctionReturn(PETSC_SUCCESS);
  }
};

template <typename Data, typename Object>
PetscErrorCode CopyOptionTable(Object from, Object to)
{
  PetscFunctionBegin;
  PetscCall(Data::options.Copy(from, to));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The operation that resets an object, takes away what its type has composed, and deletes its data. */
template <typename Data, auto Reset, auto Compose, typename Object>
PetscErrorCode DestroyData(Object object)
{
  PetscFunctionBegin;
  PetscCall(Reset(object));
  PetscCall(Compose(object, PETSC_FALSE));
  delete (Data *)object->data;
  object->data = nullptr;
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* The operation of an object whose data has such a table. */
template <typename Data, typename Object>
PetscErrorCode SetFromOptionTable(Object object, OptionItems items)
{
  PetscFunctionBegin;
  PetscCall(Data::options.SetFromOptions(object, items));
  PetscCall(BackendFromOptions((PetscObject)object, items));
  if constexpr (std::is_same_v<Object, PC>) PetscCall(PCReuseFromOptions(object, items));
  PetscFunctionReturn(PETSC_SUCCESS);
}
