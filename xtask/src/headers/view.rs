//! The view of a Rust source that cbindgen gets to see: only what C shall see,
//! in the form in which C programs know it.
//!
//! Enumerations that C or the kernel may write are integers in the crate, a
//! type alias with constants of that type; here they become enumerations
//! again. Which name belongs to which kind of foreign type is looked up in
//! the bindings of libibverbs.

use std::collections::HashMap;

use anyhow::Result;
use quote::ToTokens;
use syn::{
    Attribute, Expr, File, Item, ItemConst, ItemEnum, Lit, LitInt, Meta, Type, Visibility,
    parse_quote,
};

/// Structures of the C library that appear in the interface.
const LIBC_STRUCTS: &[&str] = &[
    "epoll_event",
    "iovec",
    "msghdr",
    "pollfd",
    "sockaddr",
    "sockaddr_storage",
    "timeval",
];

/// The part of `source` that concerns C, as Rust for cbindgen.
pub fn of(source: &str) -> Result<String> {
    let file = syn::parse_file(source)?;
    let mut enums = enumerations(&file);
    let mut items: Vec<Item> = Vec::new();
    for item in file.items {
        match item {
            Item::Type(alias) => {
                items.extend(enums.remove(&alias.ident.to_string()).map(Item::Enum));
            }
            Item::Const(constant) if !is_public(&constant.vis) || is_enumerator(&constant) => {}
            Item::Fn(mut function) if is_exported(&function.attrs) => {
                function.block = parse_quote!({});
                function.attrs = documentation(&function.attrs);
                function.attrs.push(parse_quote!(#[unsafe(no_mangle)]));
                items.push(Item::Fn(function));
            }
            Item::Const(mut constant) => {
                constant.attrs = documentation(&constant.attrs);
                add_suffix(&mut constant);
                items.push(Item::Const(constant));
            }
            Item::Struct(mut item) => {
                item.attrs = layout(&item.attrs);
                for field in &mut item.fields {
                    field.attrs = documentation(&field.attrs);
                }
                items.push(Item::Struct(item));
            }
            Item::Union(mut item) => {
                item.attrs = layout(&item.attrs);
                for field in &mut item.fields.named {
                    field.attrs = documentation(&field.attrs);
                }
                items.push(Item::Union(item));
            }
            _ => {}
        }
    }
    Ok(items
        .iter()
        .map(|item| item.to_token_stream().to_string() + "\n")
        .collect())
}

/// How C names the foreign types that the interface mentions: the types of
/// libibverbs according to its `bindings`, and those of the C library.
pub fn foreign_types(bindings: &str) -> Result<HashMap<String, String>> {
    let mut names: HashMap<_, _> = LIBC_STRUCTS
        .iter()
        .map(|name| ((*name).to_owned(), format!("struct {name}")))
        .collect();
    for item in syn::parse_file(bindings)?.items {
        let (kind, name) = match item {
            Item::Struct(item) => ("struct", item.ident.to_string()),
            Item::Union(item) => ("union", item.ident.to_string()),
            Item::Type(item) => ("enum", item.ident.to_string()),
            _ => continue,
        };
        if name.starts_with("ibv_") {
            names.insert(name.clone(), format!("{kind} {name}"));
        }
    }
    Ok(names)
}

/// The aliases that have constants of their type, as C enumerations.
fn enumerations(file: &File) -> HashMap<String, ItemEnum> {
    let mut enums: HashMap<String, ItemEnum> = HashMap::new();
    for item in &file.items {
        if let Item::Type(alias) = item {
            let (name, docs) = (&alias.ident, documentation(&alias.attrs));
            enums.insert(
                name.to_string(),
                parse_quote!(#(#docs)* #[repr(C)] pub enum #name {}),
            );
        }
    }
    for item in &file.items {
        if let Item::Const(constant) = item
            && let Some(of) = type_name(&constant.ty)
            && let Some(enumeration) = enums.get_mut(&of)
        {
            let (name, value) = (&constant.ident, &constant.expr);
            let docs = documentation(&constant.attrs);
            let variant: syn::Variant = parse_quote!(#(#docs)* #name = #value);
            enumeration.variants.push(variant);
        }
    }
    enums.retain(|_, enumeration| !enumeration.variants.is_empty());
    enums
}

/// Whether a constant is a value of an enumeration: those have a type of the
/// crate's own.
fn is_enumerator(constant: &ItemConst) -> bool {
    type_name(&constant.ty)
        .is_some_and(|name| ["rdma_", "srpt_"].iter().any(|own| name.starts_with(own)))
}

fn type_name(ty: &Type) -> Option<String> {
    match ty {
        Type::Path(path) => path.path.get_ident().map(ToString::to_string),
        _ => None,
    }
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

fn is_exported(attrs: &[Attribute]) -> bool {
    attrs.iter().any(|attr| {
        attr.path().is_ident("unsafe") && attr.to_token_stream().to_string().contains("no_mangle")
    })
}

/// Gives a literal the suffix that cbindgen derives its C type from.
fn add_suffix(constant: &mut ItemConst) {
    if let Some(literal) = integer(&constant.expr)
        && type_name(&constant.ty).as_deref() == Some("u64")
    {
        let suffixed = LitInt::new(&format!("{}u64", literal.base10_digits()), literal.span());
        *constant.expr = parse_quote!(#suffixed);
    }
}

fn integer(expr: &Expr) -> Option<&LitInt> {
    match expr {
        Expr::Lit(value) => match &value.lit {
            Lit::Int(literal) => Some(literal),
            _ => None,
        },
        _ => None,
    }
}

/// `header` with the constants of `source` in hexadecimal where the source
/// has them so; cbindgen writes all numbers in decimal.
pub fn restore_hexadecimal(header: &str, source: &str) -> Result<String> {
    let mut header = header.to_owned();
    for item in syn::parse_file(source)?.items {
        if let Item::Const(constant) = item
            && let Some(literal) = integer(&constant.expr)
            && literal.to_string().starts_with("0x")
        {
            let (name, decimal) = (&constant.ident, literal.base10_digits());
            let hex = literal.to_string().replace('_', "");
            for (before, after) in [("#define ", " "), ("  ", " = ")] {
                header = header.replace(
                    &format!("\n{before}{name}{after}{decimal}"),
                    &format!("\n{before}{name}{after}{hex}"),
                );
            }
        }
    }
    Ok(header)
}

/// What cbindgen needs of the attributes of a structure or union.
fn layout(attrs: &[Attribute]) -> Vec<Attribute> {
    let mut kept = documentation(attrs);
    kept.extend(
        attrs
            .iter()
            .filter(|attr| attr.path().is_ident("repr"))
            .cloned(),
    );
    kept
}

/// The documentation among `attrs`, in words for C programmers.
fn documentation(attrs: &[Attribute]) -> Vec<Attribute> {
    attrs
        .iter()
        .filter_map(doc_line)
        .map(|line| {
            let line = match line.trim() {
                "# Safety" => " What the caller has to see to:".to_owned(),
                _ => line.replace('`', "").replace('…', "..."),
            };
            parse_quote!(#[doc = #line])
        })
        .collect()
}

fn doc_line(attr: &Attribute) -> Option<String> {
    let Meta::NameValue(meta) = &attr.meta else {
        return None;
    };
    match &meta.value {
        Expr::Lit(value) if meta.path.is_ident("doc") => match &value.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integer_aliases_with_constants_become_enumerations() {
        let view = of("
            /// A colour.
            pub type rdma_colour = u32;
            /// Red.
            pub const RDMA_RED: rdma_colour = 3;
            pub const RDMA_LIMIT: u8 = 9;
        ")
        .unwrap();
        assert!(view.contains("enum rdma_colour"), "{view}");
        assert!(view.contains("RDMA_RED = 3"), "{view}");
        assert!(view.contains("const RDMA_LIMIT : u8 = 9"), "{view}");
    }

    #[test]
    fn only_exported_functions_are_seen() {
        let view = of("
            #[unsafe(no_mangle)]
            pub unsafe extern \"C\" fn seen() { let secret = 1; }
            fn unseen() {}
        ")
        .unwrap();
        assert!(view.contains("fn seen"), "{view}");
        assert!(!view.contains("secret"), "{view}");
        assert!(!view.contains("unseen"), "{view}");
    }
}
