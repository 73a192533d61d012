//! Headers of Linux: the structures of bits of `mlx5_ifc.h`, of which each `u8 name[N]` has N, and
//! those of bytes beside it.
//!
//! Only what these files have: structures and unions, with or without a name, arrays of any number
//! of dimensions. Whatever else stands there is passed over.

use std::collections::BTreeMap;

use super::Item;

/// Structures by name; those of bits without `mlx5_ifc_` and `_bits`.
#[derive(Debug, Default)]
pub(crate) struct Header(BTreeMap<String, Body>);

/// Integers of structures of bytes, and their bits. Of the structures of bits only the first is.
const INTEGERS: &[(&str, usize)] =
    &[("u8", 8), ("__be16", 16), ("__be32", 32), ("__be64", 64), ("__u8", 8), ("u32", 32)];

#[derive(Clone, Debug, Default)]
struct Body {
    /// All fields begin at the first bit.
    union: bool,
    fields: Vec<Field>,
}

#[derive(Clone, Debug)]
struct Field {
    /// Empty where it has none.
    name: String,
    kind: Kind,
    /// Product of the dimensions; 0 for an array without a length.
    count: usize,
}

#[derive(Clone, Debug)]
enum Kind {
    Bits(usize),
    Named(String),
    Body(Body),
}

impl Header {
    pub(crate) fn parse(text: &str) -> Self {
        let mut tokens = Tokens::of(text);
        let mut all = BTreeMap::new();
        while let Some(token) = tokens.next() {
            match token.as_str() {
                "struct" | "union" if tokens.peek(1) == Some("{") => {
                    let name = tokens.next().unwrap_or_default();
                    tokens.next();
                    let fields = tokens.fields(if name.ends_with("_bits") { 1 } else { 8 });
                    all.insert(short(&name), Body { union: token == "union", fields });
                }
                "{" => tokens.skip_braces(),
                _ => {}
            }
        }
        Self(all)
    }

    /// Fields of a structure: those of unions and structures without a name are its own.
    pub(crate) fn items(&self, name: &str) -> Option<Vec<Item>> {
        let mut items = Vec::new();
        self.list(self.0.get(name)?, 0, &mut items);
        Some(items)
    }

    /// A field by its path through structures with names.
    pub(crate) fn field(&self, name: &str, path: &str) -> Option<Item> {
        let (head, rest) = path.split_once('.').map_or((path, None), |(h, r)| (h, Some(r)));
        let item = self.items(name)?.into_iter().find(|item| item.name == head)?;
        let Some(rest) = rest else { return Some(item) };
        let field = self.0.get(name)?.fields.iter().find(|field| field.name == head)?;
        let Kind::Named(inner) = &field.kind else { return None };
        let inner = self.field(inner, rest)?;
        Some(Item { bit: item.bit + inner.bit, ..inner })
    }

    fn list(&self, body: &Body, mut at: usize, items: &mut Vec<Item>) {
        for field in &body.fields {
            match &field.kind {
                Kind::Body(inner) if field.name.is_empty() => self.list(inner, at, items),
                Kind::Bits(_) | Kind::Body(_) | Kind::Named(_) => {
                    items.push(Item { name: field.name.clone(), bit: at, width: self.bits(field) })
                }
            }
            if !body.union {
                at += self.bits(field);
            }
        }
    }

    fn bits(&self, field: &Field) -> usize {
        let one = match &field.kind {
            Kind::Bits(bits) => *bits,
            Kind::Named(name) => self.0.get(name).map_or(0, |body| self.size(body)),
            Kind::Body(body) => self.size(body),
        };
        one * field.count
    }

    fn size(&self, body: &Body) -> usize {
        let sizes = body.fields.iter().map(|field| self.bits(field));
        if body.union { sizes.max().unwrap_or(0) } else { sizes.sum() }
    }
}

fn short(name: &str) -> String {
    let name = name.strip_prefix("mlx5_ifc_").unwrap_or(name);
    name.strip_suffix("_bits").unwrap_or(name).to_owned()
}

/// Words, numbers and single signs, without comments and lines of the preprocessor.
fn tokens(text: &str) -> Vec<String> {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        plain.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    plain.push_str(rest);
    let mut tokens: Vec<String> = Vec::new();
    for line in plain.lines().filter(|line| !line.trim_start().starts_with('#')) {
        let line = line.split("//").next().unwrap_or_default();
        let mut within = false;
        for sign in line.chars() {
            let word = sign.is_alphanumeric() || sign == '_';
            match tokens.last_mut().filter(|_| word && within) {
                Some(last) => last.push(sign),
                None if sign.is_whitespace() => {}
                None => tokens.push(sign.to_string()),
            }
            within = word;
        }
    }
    tokens
}

struct Tokens {
    tokens: Vec<String>,
    at: usize,
    /// Values of enumerations.
    numbers: BTreeMap<String, usize>,
}

impl Tokens {
    fn of(text: &str) -> Self {
        let tokens = tokens(text);
        let numbers = tokens.windows(3).filter_map(<[_]>::first_chunk::<3>);
        let numbers = numbers.filter(|[_, sign, _]| sign == "=");
        let numbers = numbers.filter_map(|[name, _, value]| Some((name.clone(), number(value)?)));
        Self { numbers: numbers.collect(), tokens, at: 0 }
    }

    fn next(&mut self) -> Option<String> {
        self.at += 1;
        self.tokens.get(self.at - 1).cloned()
    }

    fn peek(&self, ahead: usize) -> Option<&str> {
        self.tokens.get(self.at + ahead).map(String::as_str)
    }

    fn skip_braces(&mut self) {
        let mut depth = 1;
        while depth > 0 {
            match self.next().as_deref() {
                Some("{") => depth += 1,
                Some("}") => depth -= 1,
                Some(_) => {}
                None => return,
            }
        }
    }

    /// Up to the closing brace, and that. Of `u8` so many bits are meant.
    fn fields(&mut self, byte: usize) -> Vec<Field> {
        let mut fields = Vec::new();
        while let Some(token) = self.next().filter(|token| token != "}") {
            let integer = INTEGERS.iter().find(|integer| integer.0 == token);
            let kind = match token.as_str() {
                "u8" => Kind::Bits(byte),
                "struct" | "union" if self.peek(0) == Some("{") => {
                    self.next();
                    Kind::Body(Body { union: token == "union", fields: self.fields(byte) })
                }
                "struct" | "union" => Kind::Named(short(&self.next().unwrap_or_default())),
                // A macro around fields, with a name.
                "struct_group" => {
                    self.at += 3;
                    continue;
                }
                _ => {
                    let Some((_, bits)) = integer else {
                        // An array that a macro declares: it has no length.
                        while self.next().is_some_and(|token| token != ";") {}
                        continue;
                    };
                    Kind::Bits(*bits)
                }
            };
            let mut field = Field { name: String::new(), kind, count: 1 };
            while let Some(token) = self.next().filter(|token| token != ";") {
                match token.as_str() {
                    "[" => field.count *= self.dimension(),
                    ":" => field.kind = Kind::Bits(self.dimension_of_bits()),
                    name => name.clone_into(&mut field.name),
                }
            }
            fields.push(field);
        }
        fields
    }

    /// A number and the closing bracket. What is no number counts as one.
    fn dimension(&mut self) -> usize {
        let word = self.next().unwrap_or_default();
        if word == "]" {
            return 0;
        }
        self.next();
        number(&word).or_else(|| self.numbers.get(&word).copied()).unwrap_or(1)
    }

    fn dimension_of_bits(&mut self) -> usize {
        self.next().and_then(|word| number(&word)).unwrap_or(0)
    }
}

fn number(word: &str) -> Option<usize> {
    match word.strip_prefix("0x") {
        Some(digits) => usize::from_str_radix(digits, 16).ok(),
        None => word.parse().ok(),
    }
}

#[test]
fn structures_of_bits_are_read() {
    let header = Header::parse(
        "#define X 1\nenum { A = 0x1, }; /* u8 no[0x4]; */\n\
         union mlx5_ifc_word_bits { struct mlx5_ifc_low_bits low; u8 whole[0x20]; };\n\
         struct mlx5_ifc_low_bits { u8 reserved_at_0[0x8]; u8 low[0x8]; };\n\
         struct mlx5_ifc_thing_bits {\n u8 a[0x3]; // u8 b[0x1];\n u8 c[0x1d];\n\
         union { u8 left[0x20]; struct { u8 top[0x10]; u8 end[0x10]; }; };\n\
         union mlx5_ifc_word_bits word; u8 list[2][0x20];\n\
         DECLARE(struct x, y);\n struct mlx5_ifc_low_bits inner; u8 pas[][0x40]; };",
    );
    let item = |name: &str, bit, width| Item { name: name.into(), bit, width };
    let expected = [
        item("a", 0, 3),
        item("c", 3, 29),
        item("left", 32, 32),
        item("top", 32, 16),
        item("end", 48, 16),
        item("word", 64, 32),
        item("list", 96, 64),
        item("inner", 160, 16),
        item("pas", 176, 0),
    ];
    assert_eq!(header.items("thing").unwrap(), expected);
    assert_eq!(header.field("thing", "inner.low"), Some(item("low", 168, 8)));
    assert_eq!(header.items("nothing"), None);
}

#[test]
fn structures_of_bytes_are_read() {
    let header = Header::parse(
        "enum { SIZE = 3, };\nstruct thing {\n__be32 head; struct_group(tail,\n u8 list[SIZE];\n\
         u8 low:5; u8 high:3;\n); /* end */\n union { __be16 port; struct { u8 a; } b; };\n\
         } __packed;",
    );
    let item = |name: &str, bit, width| Item { name: name.into(), bit, width };
    let expected = [
        item("head", 0, 32),
        item("list", 32, 24),
        item("low", 56, 5),
        item("high", 61, 3),
        item("port", 64, 16),
        item("b", 64, 8),
    ];
    assert_eq!(header.items("thing").unwrap(), expected);
}
