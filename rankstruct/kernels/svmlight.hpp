// Reading SVMlight lines from bytes: `label qid:query id:value id:value ... # comment`.
//
// One pass, without allocation: the caller passes arrays that are large enough (`room_for`). A number that cannot be read exactly
// here (digits beyond an integer and a value halfway between two float32 numbers, or an extreme exponent) is left to the caller;
// a malformed line stops the pass with a `Problem` and its position. The text has no terminator, and no byte beyond its size is
// read.
#pragma once

#include <bit>
#include <cstring>
#include <string_view>

#include "base.hpp"

namespace rankstruct::svmlight {

using Byte = unsigned char;

enum class Problem : Index { NONE, LABEL, FEATURE, VALUE, QID_EMPTY, QID_MISSING, QID_SURPRISE, QID_HASH, ID_ZERO, ID_ORDER, ID_LARGE };

// Bytes [first, last) of the text.
struct Range {
    Index first, last;
};

// A number that the caller has to read.
struct Hard {
    Index first;   // its first byte
    Index target;  // the entry whose value it is, or -1 - the document whose label it is
};

// The arguments from Python, with the fields of `data._parse`, and the outputs.
struct Lines {
    const Byte* text;  // [size]
    Index size;
    Index base, limit;  // the smallest and the largest feature id
    // Per document.
    float* labels;
    Index* indptr;    // one more than documents: its first entry
    Index* starts;    // the first byte of its line
    int* missing;     // the number of NULL values
    Range* comments;  // without surrounding blanks
    Range* docids;
    // Per entry.
    int* indices;  // the feature, from 0
    float* values;
    // Per list; empty if lines have no qid.
    Index* offsets;  // one more than lists: its first document
    Range* qids;
    Index* lines_before;
    Hard* hard;
    float fill;  // the value of missing features
    // Outputs.
    Index documents, lists, hards;
    Problem problem;
    Index place;  // the byte of the problem
};

// A set of characters below 64, as bits.
template <class... Characters>
constexpr Bits64 characters(Characters... each) {
    return ((1ULL << each) | ...);
}

constexpr bool is_in(Bits64 set, Byte c) { return c < 64 && set >> c & 1; }
constexpr bool is_digit(Byte c) { return Byte(c - '0') < 10; }

constexpr Bits64 BLANKS = characters(' ', '\t'), GAPS = BLANKS | characters('\r'), CONTENT_ENDS = characters('#', '\n');
constexpr Bits64 TOKEN_ENDS = GAPS | CONTENT_ENDS;
constexpr Bits64 WHITE_SPACE = GAPS | characters('\n');

constexpr int MAX_DIGITS = 18, MAX_POWER = 60, EXACT_POWER = 22;
constexpr Index EXACT_INTEGER = 1LL << 53;
constexpr double POWERS[MAX_POWER + 1] = {
    1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20,
    1e21, 1e22, 1e23, 1e24, 1e25, 1e26, 1e27, 1e28, 1e29, 1e30, 1e31, 1e32, 1e33, 1e34, 1e35, 1e36, 1e37, 1e38, 1e39, 1e40, 1e41,
    1e42, 1e43, 1e44, 1e45, 1e46, 1e47, 1e48, 1e49, 1e50, 1e51, 1e52, 1e53, 1e54, 1e55, 1e56, 1e57, 1e58, 1e59, 1e60};
constexpr Bits64 SMALL_POWERS[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

// The integer of up to eight digits, and their number.
struct Digits {
    Bits64 value;
    int count;
};

// The digits at the start of the next eight bytes, all at once: the first byte is the lowest of a word.
inline Digits leading_digits(const Byte* bytes) {
    static_assert(std::endian::native == std::endian::little);
    Bits64 word;
    std::memcpy(&word, bytes, 8);
    // Borrows and carries start at bytes that are not digits and propagate to later ones, so the first of them is found.
    word -= 0x3030303030303030;
    const Bits64 others = (word | (word + 0x7676767676767676)) & 0x8080808080808080;
    const int count = others ? std::countr_zero(others) / 8 : 8;
    if (!count) return {0, 0};
    word <<= 64 - 8 * count;  // leading zeros
    // Eight digits become four two-digit numbers, which two products weight and sum in their upper halves.
    word = word * 10 + (word >> 8);
    constexpr Bits64 every_other = 0x000000FF000000FF;
    const Bits64 odd = (word & every_other) * (100 + (1000000ULL << 32));
    const Bits64 even = (word >> 16 & every_other) * (1 + (10000ULL << 32));
    return {(odd + even) >> 32, count};
}

struct Number {
    enum Kind { BAD, GOOD, HARD } kind;
    double value;
    Index end;  // the byte after it
};

// integer * 10^power, or its negative, for an integer of at most MAX_DIGITS digits. If it is at most 2^53 and |power| at most 22,
// both are exact doubles, so that one rounding gives the nearest double (Clinger, "How to Read Floating Point Numbers
// Accurately", PLDI 1990). Otherwise the relative error of the product is below 2^-51; it is used only if everything within 2^-50
// has the same nearest float32.
inline Number scaled(Index integer, Index power, bool negative, Index end) {
    const bool exact = integer <= EXACT_INTEGER && power >= -EXACT_POWER && power <= EXACT_POWER;
    if (!exact) {
        if (integer == 0) power = 0;
        if (power < -MAX_POWER || power > MAX_POWER) return {Number::HARD, 0.0, end};
    }
    const double value = power >= 0 ? double(integer) * POWERS[power] : double(integer) / POWERS[-power];
    constexpr double slack = 0x1p-50, largest = 3.4e38;
    const bool sure = exact || (value <= largest && float(value * (1 - slack)) == float(value * (1 + slack)));
    if (!sure) return {Number::HARD, 0.0, end};
    return {Number::GOOD, negative ? -value : value, end};
}

// Bytes, with a virtual line end after the last one.
struct Text {
    const Byte* bytes;
    Index size;

    Byte operator[](Index i) const { return i < size ? bytes[i] : Byte('\n'); }
    bool ends_token(Index i) const { return is_in(TOKEN_ENDS, (*this)[i]); }
    Index skip(Bits64 set, Index i) const {
        while (i < size && is_in(set, bytes[i])) ++i;
        return i;
    }
    Index find(Bits64 set, Index i) const {
        while (i < size && !is_in(set, bytes[i])) ++i;
        return i;
    }
    Index line_end(Index i) const {
        const void* found = i < size ? std::memchr(bytes + i, '\n', size_t(size - i)) : nullptr;
        return found ? static_cast<const Byte*>(found) - bytes : size;
    }
    std::string_view view(Range range) const {
        return {reinterpret_cast<const char*>(bytes) + range.first, size_t(range.last - range.first)};
    }

    // Whether a word of lower-case letters is here, in any case.
    bool has_letters(const char* word, Index i) const {
        for (Index k = 0; word[k]; ++k)
            if (((*this)[i + k] | 32) != word[k]) return false;  // | 32 makes letters lower-case
        return true;
    }

    // Whether the token NULL is here, in any case.
    bool is_null(Index i) const { return has_letters("null", i) && ends_token(i + 4); }

    // The usual token, [-]123.456 with up to 8 digits before the point and 16 after it, 18 in all; otherwise `any_number`.
    Number number(Index first) const {
        constexpr Index longest = 1 + 8 + 1 + 16 + 1;  // including the byte after it
        if (size - first < longest) return any_number(first);
        const Byte* byte = bytes + first;
        const bool negative = *byte == '-';
        byte += negative;
        Bits64 integer = 0;
        int digits = 0, decimals = 0;
        // One by one: there are few, and their number is predictable.
        for (; digits < 8 && is_digit(*byte); ++digits) integer = integer * 10 + (*byte++ - '0');
        if (*byte == '.') {
            ++byte;
            for (int count = 8; count == 8 && decimals < 16; decimals += count) {
                const Digits next = leading_digits(byte + decimals);
                count = next.count;
                integer = integer * SMALL_POWERS[count] + next.value;  // from 20 digits on it wraps, and is not used
            }
            byte += decimals;
            digits += decimals;
        }
        if (!digits || digits > MAX_DIGITS || !is_in(TOKEN_ENDS, *byte)) return any_number(first);
        return scaled(Index(integer), -decimals, negative, byte - bytes);
    }

    // A number of any form, [+-]123.456[e[+-]78] with digits on either side of the point.
    [[gnu::noinline]] Number any_number(Index i) const {
        const auto minus = [&] {
            const Byte sign = (*this)[i];
            i += sign == '-' || sign == '+';
            return sign == '-';
        };
        const bool negative = minus();
        Index integer = 0, power = 0, kept = 0;
        bool seen = false, point = false;
        for (;; ++i) {
            const Byte c = (*this)[i];
            if (c == '.' && !point) {
                point = true;
                continue;
            }
            if (!is_digit(c)) break;
            seen = true;
            if (kept < MAX_DIGITS) {
                integer = integer * 10 + (c - '0');
                kept += integer > 0;
                power -= point;
            } else {  // dropped: the integer is above 10^17, so not exact
                power += !point;
            }
        }
        if (!seen) return {Number::BAD, 0.0, i};
        if (((*this)[i] | 32) == 'e') {
            ++i;
            const bool down = minus();
            if (!is_digit((*this)[i])) return {Number::BAD, 0.0, i};
            const Index exponent = whole_number(i, MAX_POWER * MAX_POWER * MAX_POWER);  // a larger one is refused anyway
            power += down ? -exponent : exponent;
        }
        return scaled(integer, power, negative, i);
    }

    // Read digits from `i` on, which moves past them; once `enough` is reached they change nothing, so it cannot overflow.
    Index whole_number(Index& i, Index enough) const {
        Index number = 0;
        for (; is_digit((*this)[i]); ++i)
            if (number < enough) number = number * 10 + ((*this)[i] - '0');
        return number;
    }

    Range stripped(Range range) const {
        while (range.first < range.last && is_in(WHITE_SPACE, bytes[range.first])) ++range.first;
        while (range.last > range.first && is_in(WHITE_SPACE, bytes[range.last - 1])) --range.last;
        return range;
    }

    // The word after the first `docid =` of a comment without surrounding blanks, or the comment if it is one word; otherwise
    // nothing. Linear in its length.
    Range docid(Range comment) const {
        const Text inside{bytes, comment.last};
        for (Index word = comment.first; word < comment.last;) {
            if (view({word, comment.last}).starts_with("docid")) {
                const Index equals = inside.skip(WHITE_SPACE, word + 5);
                const Index first = inside.skip(WHITE_SPACE, equals + 1), last = inside.find(WHITE_SPACE, first);
                if (inside[equals] == '=' && first < last) return {first, last};
            }
            word = inside.skip(WHITE_SPACE, inside.find(WHITE_SPACE, word));
        }
        const bool one_word = inside.find(WHITE_SPACE, comment.first) == comment.last;
        return {comment.first, one_word ? comment.last : comment.first};
    }
};

// One pass. The reader works on a copy of its arguments and is inlined completely, so that its state is in registers.
class Reader {
  public:
    explicit Reader(const Lines& lines) : lines(lines), text{lines.text, lines.size} {}

    // Read everything; returns the arguments with the outputs.
    [[gnu::always_inline]] Lines read() {
        lines.indptr[0] = lines.offsets[0] = 0;
        lines.documents = lines.lists = lines.hards = 0;
        lines.problem = Problem::NONE;
        while (find_document() && read_label() && read_qid() && read_features()) end_document();
        if (lines.problem == Problem::NONE) {
            lines.offsets[lines.lists] = lines.documents;
            lines.place = text.size;
        }
        return lines;
    }

  private:
    Lines lines;
    const Text text;
    Index at = 0, lines_before = 0, entries = 0;
    bool with_qid = false;

    bool refuse(Problem problem, Index place) {
        lines.problem = problem;
        lines.place = place;
        return false;
    }

    // Go to the label of the next document; false if there is none.
    bool find_document() {
        while (at < text.size) {
            const Index start = at;
            at = text.skip(GAPS, at);
            if (at < text.size && !is_in(CONTENT_ENDS, text[at])) {
                lines.starts[lines.documents] = start;
                return true;
            }
            end_line();
        }
        return false;
    }

    void end_line() {
        at = text.line_end(at) + 1;
        ++lines_before;
    }

    bool read_label() {
        const Number label = text.number(at);
        if (label.kind == Number::BAD || !text.ends_token(label.end)) return refuse(Problem::LABEL, at);
        if (label.kind == Number::HARD) lines.hard[lines.hards++] = {at, -1 - lines.documents};
        lines.labels[lines.documents] = float(label.value);
        at = label.end;
        return true;
    }

    bool read_qid() {
        at = text.skip(BLANKS, at);
        const bool has_qid = text.has_letters("qid", at) && text[at + 3] == ':';
        if (lines.documents == 0) with_qid = has_qid;
        if (has_qid != with_qid) return refuse(with_qid ? Problem::QID_MISSING : Problem::QID_SURPRISE, at);
        if (!has_qid) return true;
        const Range qid{at + 4, text.find(TOKEN_ENDS, at + 4)};
        if (text[qid.last] == '#') return refuse(Problem::QID_HASH, at);  // a comment, or part of the name
        if (qid.first == qid.last) return refuse(Problem::QID_EMPTY, text.skip(GAPS, lines.starts[lines.documents]));
        if (lines.lists == 0 || text.view(qid) != text.view(lines.qids[lines.lists - 1])) {
            lines.offsets[lines.lists] = lines.documents;
            lines.qids[lines.lists] = qid;
            lines.lines_before[lines.lists++] = lines_before;
        }
        at = qid.last;
        return true;
    }

    bool read_features() {
        Index last = lines.base - 1;
        int missing = 0;
        for (;;) {
            at = text.skip(GAPS, at);
            if (is_in(CONTENT_ENDS, text[at])) break;
            const Index token = at;
            const Index feature = text.whole_number(at, 10000000000);  // beyond any limit
            if (at == token || text[at] != ':') return refuse(Problem::FEATURE, token);
            if (feature <= last) return refuse(feature < lines.base ? Problem::ID_ZERO : Problem::ID_ORDER, token);
            if (feature > lines.limit) return refuse(Problem::ID_LARGE, token);
            last = feature;
            ++at;
            Number number = text.number(at);
            if (number.kind == Number::BAD && text.is_null(at)) {
                number = {Number::GOOD, lines.fill, at + 4};
                ++missing;
            }
            if (number.kind == Number::BAD || !text.ends_token(number.end)) return refuse(Problem::VALUE, token);
            if (number.kind == Number::HARD) lines.hard[lines.hards++] = {at, entries};
            lines.indices[entries] = int(feature - lines.base);
            lines.values[entries++] = float(number.value);
            at = number.end;
        }
        lines.missing[lines.documents] = missing;
        return true;
    }

    void end_document() {
        Range comment{at, at};
        if (text[at] == '#') {
            at = text.line_end(at);
            comment = text.stripped({comment.first + 1, at});
        }
        lines.comments[lines.documents] = comment;
        lines.docids[lines.documents] = text.docid(comment);
        end_line();
        lines.indptr[++lines.documents] = entries;
    }
};

// Upper bounds of the documents and entries in a text.
struct Room {
    Index documents, entries;
};

inline Room room_for(const Byte* text, Index size) {
    constexpr Index block = 128;  // small enough for counts in bytes, many of which fit a vector register
    Room room{1, size > 0 && text[0] == ':'};
    for (Index first = 1; first < size; first += block) {
        const Index last = least(first + block, size);
        Byte line_ends = 0, colons = 0;
        for (Index i = first; i < last; ++i) {
            line_ends += (text[i] == '\n') & (text[i - 1] != '\n');  // a text may consist of blank lines
            colons += text[i] == ':';
        }
        room.documents += line_ends;
        room.entries += colons;
    }
    return room;
}

// Copy the bytes of `text` in `ranges`, one after another, to `out`, which is large enough.
inline void copy_ranges(const Byte* text, const Range* ranges, Index count, Byte* out) {
    for (Index n = 0; n < count; ++n) {
        const Index length = ranges[n].last - ranges[n].first;
        if (length > 0) std::memcpy(out, text + ranges[n].first, size_t(length));
        out += length;
    }
}

}  // namespace rankstruct::svmlight
